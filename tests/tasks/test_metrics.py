from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.errors import DataError
from clearhead.tasks.base.metrics import (
    Question,
    accuracy,
    bits_per_character,
    bleu,
    caption_bleu,
    chrf,
    cider,
    confusion_matrix,
    exact_match,
    macro_f1,
    perplexity,
    read_questions,
    read_word_pairs,
    solve_analogies,
    spearman,
    token_accuracy,
    word_similarity,
)

HYPOTHESES = ["The dog bit the man .", "It was not surprising .", "The man had just bitten him ."]
REFERENCES = ["The dog bit the man.", "It was not unexpected.", "The man bit him first."]
OTHERS = ["The dog had bit the man.", "No one was surprised.", "The man had bitten the dog."]
labels = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1, max_size=29)


# --- text ---


def test_bleu_equals_sacrebleu_with_its_signature():
    import sacrebleu

    score = bleu(HYPOTHESES, REFERENCES)
    assert (score.name, score.value) == ("BLEU", sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score)
    assert score.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"


def test_chrf_equals_sacrebleu_with_its_signature():
    import sacrebleu

    score = chrf(HYPOTHESES, REFERENCES)
    assert (score.name, score.value) == ("chrF2", sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score)
    assert score.signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{sacrebleu.__version__}"


def test_bleu_of_captions_takes_several_references_by_sentence():
    import sacrebleu

    score = caption_bleu(HYPOTHESES, list(zip(REFERENCES, OTHERS, strict=True)))
    assert score.value == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES, OTHERS]).score
    assert "nrefs:2|" in score.signature


def test_sentences_may_differ_in_their_number_of_references():
    references = [[REFERENCES[0]], [REFERENCES[1], OTHERS[1]], [REFERENCES[2], OTHERS[2]]]
    score = caption_bleu(HYPOTHESES, references)
    assert bleu(HYPOTHESES, REFERENCES).value < score.value
    assert "nrefs:var|" in score.signature


def test_the_settings_show_in_the_signature():
    score = bleu(["a B c d e"], ["A b c d e"], lowercase=True, tokenize="none")
    assert score.value == pytest.approx(100)
    assert "case:lc|eff:no|tok:none" in score.signature
    assert chrf(["ABC"], ["abc"], lowercase=True).value == pytest.approx(100)


def test_exact_match_forgives_space_around():
    score = exact_match(["yes ", "no", "maybe"], ["yes", "No", " maybe"])
    assert (score.name, score.value, score.signature) == ("exact match", 2 / 3, "n:3")


# --- language ---


def test_perplexity_of_a_fair_choice_is_the_number_of_choices():
    assert perplexity(math.log(7)).value == pytest.approx(7)
    assert perplexity(0.0).value == 1.0
    assert perplexity(1000.0).value == math.inf


def test_bits_per_character():
    score = bits_per_character(math.log(2) * 3, tokens=10, characters=15)
    assert score.value == pytest.approx(2)
    assert score.signature == "characters:15"
    with pytest.raises(DataError, match="a text of 0 characters"):
        bits_per_character(1.0, 3, 0)


# --- labels ---


@given(labels)
def test_accuracy_is_the_diagonal_of_the_confusion_matrix(pairs):
    predicted, wanted = map(list, zip(*pairs, strict=True))
    matrix = np.array(confusion_matrix(predicted, wanted, "abc"))
    assert matrix.sum() == len(pairs)
    assert accuracy(predicted, wanted).value == pytest.approx(np.trace(matrix) / len(pairs))


@given(labels)
def test_macro_f1_is_the_mean_of_the_harmonic_means(pairs):
    predicted, wanted = map(list, zip(*pairs, strict=True))
    found = []
    for label in {*predicted, *wanted}:
        hits = sum(p == w == label for p, w in pairs)
        precision = hits / predicted.count(label) if label in predicted else 0.0
        recall = hits / wanted.count(label) if label in wanted else 0.0
        found.append(2 * precision * recall / (precision + recall) if hits else 0.0)
    score = macro_f1(predicted, wanted)
    assert score.value == pytest.approx(sum(found) / len(found))
    assert score.signature == f"n:{len(pairs)}|labels:{len(found)}"


def test_rows_of_the_confusion_matrix_are_references():
    assert confusion_matrix([1, 1, 0, 1], [0, 0, 0, 1], [0, 1, 2]) == [[1, 2, 0], [0, 1, 0], [0, 0, 0]]
    with pytest.raises(DataError, match="label 7 is not one of 0, 1"):
        confusion_matrix([1, 7], [0, 1], [0, 1])


def test_token_accuracy_counts_tokens_not_sentences():
    score = token_accuracy([["A"], ["B", "B", "B"]], [["A"], ["B", "A", "A"]])
    assert (score.name, score.value, score.signature) == ("token accuracy", 0.5, "n:4")
    with pytest.raises(DataError, match="sentence 2 has 3 tokens and 1 predicted labels"):
        token_accuracy([["A"], ["B"]], [["A"], ["B", "A", "A"]])


@pytest.mark.parametrize("metric", [bleu, chrf, exact_match, accuracy, macro_f1, token_accuracy])
def test_unequal_lengths_and_empty_lists_are_refused(metric):
    with pytest.raises(DataError, match="3 predictions cannot be compared with 2 references"):
        metric(["a", "b", "c"], ["a", "b"])
    with pytest.raises(DataError, match="nothing to measure"):
        metric([], [])


def test_cider_by_hand():
    # Of two images: `a` has the weight log 1 = 0, `cat`, `dog`, `a cat` and `a dog` have log 2.
    # The first caption: cosine 1 for one word and for two, none for three and four: (1 + 1 + 0 + 0) / 4.
    score = cider(["A cat.", "a cat"], [["a cat"], ["a dog"]])
    assert score.name == "CIDEr"
    assert score.value == pytest.approx(10 * (2 / 4 + 0) / 2)
    assert score.signature == "CIDEr-D|n:4|sigma:6|images:2"


def test_cider_clips_repeated_words_and_minds_the_length():
    # All weights are log 2. `cat` counts once of three times: 1 / (3 √2); the caption is one word too long.
    first = math.exp(-1 / (2 * 6**2)) * (1 / (3 * math.sqrt(2))) / 4
    assert cider(["cat cat cat", "dog"], [["red cat"], ["blue"]]).value == pytest.approx(10 * (first + 0) / 2)


def test_cider_is_the_mean_over_references_and_does_not_depend_on_their_order():
    references = [["a red cat sleeps", "the cat"], ["two dogs run fast"], ["one bird"]]
    score = cider(["a red cat", "two dogs run", "a fish"], references)
    turned = [list(reversed(each)) for each in references]
    assert cider(["a red cat", "two dogs run", "a fish"], turned).value == pytest.approx(score.value)
    single = [cider(["a red cat", "x", "x"], [[each], *references[1:]]).value for each in references[0]]
    assert all(value > 0 for value in single)


def test_cider_needs_a_reference():
    with pytest.raises(DataError, match="sentence 2 has no reference"):
        cider(["a", "b"], [["a"], []])


def test_a_caption_needs_a_reference():
    with pytest.raises(DataError, match="sentence 2 has no reference"):
        caption_bleu(["a", "b"], [["a"], []])


# --- words ---


def test_spearman_by_hand():
    assert spearman([1, 2, 3, 4], [10, 20, 30, 400]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # ranks 1, 2.5, 2.5, 4 and 2, 1, 3.5, 3.5
    assert spearman([1, 2, 2, 5], [3, 1, 7, 7]) == pytest.approx(0.5)
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=3, max_size=31))
def test_spearman_equals_scipy(pairs):
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    x, y = zip(*pairs, strict=True)
    if len(set(x)) > 1 and len(set(y)) > 1:
        assert spearman(x, y) == pytest.approx(float(stats.spearmanr(x, y).statistic))


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=31, unique=True))
def test_spearman_sees_the_order_only(values):
    assert spearman(values, [math.exp(value / 100) for value in values]) == pytest.approx(1)


WORDS = ["king", "man", "woman", "queen", "apple", "King"]
VECTORS = np.array([[5.0, 1, 0], [1, 1, 0], [1, 1, 3], [5, 1, 3], [-4, 2, -9], [0, 0, 1]], dtype=np.float32)


def test_word_similarity_ranks_pairs_by_cosine_and_skips_unknown_words():
    pairs = [("King", "queen", 9.0), ("man", "woman", 7.0), ("king", "apple", 1.0), ("king", "pear", 5.0)]
    found = word_similarity(VECTORS, WORDS, pairs)
    cosines = [
        float(VECTORS[i] @ VECTORS[j] / np.linalg.norm(VECTORS[i]) / np.linalg.norm(VECTORS[j]))
        for i, j in ((0, 3), (1, 2), (0, 4))
    ]
    assert found.correlation == pytest.approx(spearman(cosines, [9, 7, 1]))
    assert (found.used, found.skipped) == (3, 1)
    with pytest.raises(DataError, match="none of the 1 word pairs is in the vocabulary of 6 words"):
        word_similarity(VECTORS, WORDS, [("pear", "plum", 5.0)])


def test_analogies_are_counted_by_section():
    questions = [
        Question("family", ("Man", "Woman", "King", "Queen")),
        Question("family", ("man", "king", "woman", "queen")),
        Question("fruit", ("man", "woman", "king", "apple")),
        Question("fruit", ("man", "woman", "king", "pear")),
    ]
    found = solve_analogies(VECTORS, WORDS, questions)
    assert found.sections == {"family": (2, 2), "fruit": (0, 1)}
    assert found.skipped == 1
    assert found.accuracy == pytest.approx(2 / 3)
    with pytest.raises(DataError, match="none of the 1 questions is in the vocabulary"):
        solve_analogies(VECTORS, WORDS, questions[-1:])
    with pytest.raises(DataError, match="there are 5 vectors for 6 words"):
        solve_analogies(VECTORS[:5], WORDS, questions)


def test_the_words_of_the_question_are_no_answer():
    close = np.array([[1.0, 0], [1, 0.01], [1, 0.02], [0, 1]])  # the nearest to b - a + c are b and c themselves
    assert solve_analogies(close, ["a", "b", "c", "d"], [Question("", ("a", "b", "c", "d"))]).accuracy == 1.0


def test_many_questions_are_the_questions_one_by_one():
    generator = np.random.default_rng(1)
    vectors, words = generator.normal(size=(53, 7)), [f"w{i}" for i in range(53)]
    questions = [Question("all", tuple(generator.choice(words, 4, replace=False))) for _ in range(101)]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    right = 0
    for question in questions:
        a, b, c, d = (words.index(word) for word in question.words)
        scores = unit @ (unit[b] - unit[a] + unit[c])
        scores[[a, b, c]] = -np.inf
        right += int(scores.argmax() == d)
    assert solve_analogies(vectors, words, questions).sections == {"all": (right, 101)}


def test_questions_are_read_with_their_sections(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_text(": capitals of\nAthens Greece Oslo Norway\n\n: family\nboy girl man woman\n", encoding="utf-8")
    assert read_questions(path) == [
        Question("capitals of", ("Athens", "Greece", "Oslo", "Norway")),
        Question("family", ("boy", "girl", "man", "woman")),
    ]
    path.write_text(": family\nboy girl man\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"questions\.txt, line 2: has 3 words where 4 are expected"):
        read_questions(path)


def test_word_pairs_are_read_without_comments(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("# Word 1\tWord 2\tHuman\nlove\tsex\t6.77\n\ntiger cat 7.35\n", encoding="utf-8")
    assert read_word_pairs(path) == [("love", "sex", 6.77), ("tiger", "cat", 7.35)]
    path.write_text("love\tsex\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"pairs\.tsv, line 1: is not two words and a number"):
        read_word_pairs(path)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match=r"absent\.txt: cannot be read: No such file"):
        read_questions(tmp_path / "absent.txt")
    (tmp_path / "latin").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DataError, match="latin: cannot be read: it is not UTF-8 text"):
        read_word_pairs(tmp_path / "latin")


def test_metrics_need_neither_torch_nor_sacrebleu_until_called():
    code = "import sys, clearhead.tasks.base.metrics; sys.exit(bool({'torch', 'sacrebleu'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
