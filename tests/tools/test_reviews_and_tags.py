"""The reviews and the tagged sentences: balanced, distinct, and not to be solved word by word."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from random import Random

import pytest

from builtin_data.reviews import review, reviews
from builtin_data.reviews.patterns import PATTERNS, Reviewer, concession, negated_opposite
from builtin_data.reviews.words import TOPICS
from builtin_data.tags import TAGS, punctuated, tagged_sentences
from builtin_data.tags.patterns import PATTERNS as TAG_PATTERNS
from clearhead.data import builtin
from clearhead.data.examples import Labelled, Tagged


@pytest.fixture(scope="module")
def labelled() -> tuple[Labelled, ...]:
    return builtin.examples("labelled")


@pytest.fixture(scope="module")
def tagged() -> tuple[Tagged, ...]:
    return builtin.examples("tagged")


def test_reviews_are_balanced_distinct_and_always_the_same(labelled: tuple[Labelled, ...]) -> None:
    assert Counter(example.label for example in labelled) == {"positive": 3_000, "negative": 3_000}
    assert len({example.text for example in labelled}) == 6_000
    assert reviews() == labelled


def test_no_single_word_tells_the_opinion(labelled: tuple[Labelled, ...]) -> None:
    balance: Counter[str] = Counter()
    for example in labelled:
        for word in set(re.findall(r"[a-z]+", example.text.lower())):
            balance[word] += 1 if example.label == "positive" else -1
    best = 0.5 + max(map(abs, balance.values())) / len(labelled)
    assert best < 0.56


def test_words_of_praise_are_found_in_blame_and_the_other_way_round(labelled: tuple[Labelled, ...]) -> None:
    for word in ("good", "wonderful", "charming", "bad", "terrible", "dull", "noisy"):
        labels = Counter(example.label for example in labelled if re.search(rf"\b{word}\b", example.text))
        assert min(labels.values()) > 8, word
        assert len(labels) == 2, word


def test_denial_and_giving_way_keep_the_opinion() -> None:
    film = TOPICS[0]
    for seed in range(50):
        text = negated_opposite(Reviewer(Random(seed), film, liked=True))
        assert any(word in text for word in (*film.bad,)), text
        text = concession(Reviewer(Random(seed), film, liked=False))
        assert re.search(r"hated|regretted|unhappy|cold", text), text


def test_reviews_are_written_as_sentences(labelled: tuple[Labelled, ...]) -> None:
    for example in labelled:
        assert re.fullmatch(r"(?:[A-Z][^.]+\.)(?: [A-Z][^.]+\.)?", example.text), example
        assert not re.search(r"  | a [aeio]| an [^aeiouh]", example.text), example


def test_every_pattern_can_say_both() -> None:
    for pattern in set(PATTERNS):
        both = {pattern(Reviewer(Random(1), topic, liked)) for topic in TOPICS for liked in (True, False)}
        assert len(both) >= 2
    assert review(Random(3), True) != review(Random(3), False)


def test_tagged_sentences_are_distinct_and_always_the_same(tagged: tuple[Tagged, ...]) -> None:
    assert len(tagged) == len({sentence.tokens for sentence in tagged}) == 6_000
    assert tagged_sentences() == tagged


def test_every_word_has_a_universal_tag(tagged: tuple[Tagged, ...]) -> None:
    seen: Counter[str] = Counter()
    for sentence in tagged:
        assert len(sentence.tokens) == len(sentence.tags)
        assert all(token and " " not in token for token in sentence.tokens)
        assert sentence.tags[-1] == "PUNCT"
        assert sentence.tokens[0][0].isupper() or sentence.tokens[0][0].isdigit()
        seen.update(sentence.tags)
    assert set(seen) == set(TAGS)
    assert min(seen.values()) > 200


@pytest.mark.parametrize(
    ("word", "tags"),
    [
        ("can", {"AUX", "NOUN"}),
        ("fish", {"VERB", "NOUN"}),
        ("walk", {"VERB", "NOUN"}),
        ("that", {"DET", "PRON", "CONJ"}),
        ("to", {"PART", "ADP"}),
        ("like", {"VERB", "ADP"}),
        ("light", {"NOUN", "VERB", "ADJ"}),
        ("will", {"AUX", "PROPN"}),
        ("may", {"AUX", "PROPN"}),
        ("has", {"AUX", "VERB"}),
        ("before", {"ADP", "CONJ"}),
        ("fast", {"ADJ", "ADV"}),
        ("well", {"NOUN", "ADJ", "ADV"}),
        ("there", {"PRON", "ADV"}),
        ("saw", {"NOUN", "VERB"}),
    ],
)
def test_only_the_sentence_tells_the_tag(tagged: tuple[Tagged, ...], word: str, tags: set[str]) -> None:
    seen = Counter(
        tag
        for sentence in tagged
        for token, tag in zip(sentence.tokens, sentence.tags, strict=True)
        if token.lower() == word
    )
    assert set(seen) >= tags
    assert all(seen[tag] >= 5 for tag in tags)


def test_the_most_common_tag_of_a_word_is_often_wrong(tagged: tuple[Tagged, ...]) -> None:
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for sentence in tagged:
        for token, tag in zip(sentence.tokens, sentence.tags, strict=True):
            counts[token.lower()][tag] += 1
    right = sum(max(seen.values()) for seen in counts.values())
    assert 0.85 < right / sum(sum(seen.values()) for seen in counts.values()) < 0.96


def test_neighbouring_tags_make_sense(tagged: tuple[Tagged, ...]) -> None:
    for sentence in tagged:
        for first, second in zip(sentence.tags, sentence.tags[1:], strict=False):
            assert (first, second) not in {("DET", "VERB"), ("DET", "PUNCT"), ("ADP", "PUNCT"), ("DET", "DET")}, (
                sentence
            )


def test_every_tag_pattern_makes_a_sentence() -> None:
    for pattern in set(TAG_PATTERNS):
        for seed in range(20):
            assert punctuated(pattern(Random(seed))).tokens[-1] in ".?"
