"""Tokenizer schemes: the model, the pre-tokenizer and decoder around it, and how it is trained.

    char        one token per character
    word        one token per word or punctuation mark
    bpe         byte-pair encoding: merge the most frequent pair, again and again
    bytes       byte-pair encoding on UTF-8 bytes: every text has tokens, none is ever unknown
    wordpiece   word pieces, longest first; a piece inside a word begins with ##
    unigram     the most probable pieces under a unigram language model

The algorithms are those of the `tokenizers` library. Two promises shape the code below: training twice gives the same
vocabulary, and no learned token holds `[` before a letter, so that text which spells `[STOP]` can never become the
special token of that name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from clearhead.config import TokenizerKind
from clearhead.errors import TextError
from clearhead.text.sentences import split_chunks

Scheme = Callable[["Corpus", int], Library]

# Every vocabulary that clearhead trains begins with these, so their ids are the same for every scheme and corpus.
SPECIALS = ("[PAD]", "[UNK]", "[START]", "[STOP]", "[MASK]", "[CLASS]")
PAD, UNKNOWN, START, STOP, MASK, CLASS = SPECIALS

SPACE = "▁"  # a space before a word, inside a bpe or unigram token
WORD_START = "\ue000"  # marks the first letter of a word while word pieces are learned (a private use character)

# Numbers and words keep the punctuation inside them (3.14, don't, well-known); any other mark is a token.
PLAIN_WORDS = pre_tokenizers.Split(Regex(r"\d+(?:[.,:]\d+)+|\w+(?:[-'’]\w+)*|[^\w\s]"), "removed", invert=True)
SPACED_WORDS = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Metaspace(SPACE),
        pre_tokenizers.Split(Regex(rf"{SPACE}?(?:\w+(?:['’]\w+)*|[^\w{SPACE}]+)|{SPACE}"), "isolated"),
    ]
)
# The unigram trainer ignores a word that nothing ever follows, so here punctuation stays with its word.
SPACED_CHUNKS = pre_tokenizers.Sequence(
    [pre_tokenizers.Metaspace(SPACE), pre_tokenizers.Split("[", "merged_with_previous")]
)

# Words are joined by spaces, except before a closing mark and after an opening one.
JOIN_WORDS = decoders.Sequence(
    [
        decoders.WordPiece("##", cleanup=False),
        decoders.Fuse(),
        decoders.Replace(Regex(r" (?=[,.!?;:%)\]}…»›’”])"), ""),
        decoders.Replace(Regex(r"(?<=[(\[{¿¡«‹„‚‘]) "), ""),
    ]
)


class Corpus:
    """Training texts, read once and not kept, with their normaliser and the alphabet seen so far."""

    def __init__(self, texts: Iterable[str], *, lowercase: bool):
        self.texts = texts
        self.normalizer = normalizers.Sequence([normalizers.Lowercase()] if lowercase else [])
        self.alphabet: set[str] = set()

    def __iter__(self) -> Iterator[str]:
        for text in self.texts:
            self.alphabet.update(text)
            yield from split_chunks(text)

    def characters(self) -> list[str]:
        """The sorted alphabet of the texts read so far, after normalisation."""
        return sorted(set(self.normalizer.normalize_str("".join(sorted(self.alphabet)))))


def char(corpus: Corpus, _size: int) -> Library:
    """One token per character: byte-pair encoding with nothing to merge."""
    for _ in corpus:
        pass
    vocabulary = {token: index for index, token in enumerate([*SPECIALS, *corpus.characters()])}
    model = models.BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN)
    return assembled(model, corpus, None, decoders.Fuse())


def word(corpus: Corpus, size: int) -> Library:
    """One token per word: the most frequent ones; all others are unknown."""
    library = assembled(models.WordLevel(unk_token=UNKNOWN), corpus, PLAIN_WORDS, JOIN_WORDS)
    trainer = trainers.WordLevelTrainer(vocab_size=size, special_tokens=[*SPECIALS], show_progress=False)
    return trained(library, corpus, trainer)


def bpe(corpus: Corpus, size: int) -> Library:
    """Byte-pair encoding on characters; a space belongs to the word after it."""
    library = assembled(models.BPE(unk_token=UNKNOWN), corpus, SPACED_WORDS, decoders.Metaspace(SPACE))
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[*SPECIALS], show_progress=False)
    return trained(library, corpus, trainer)


def byte_bpe(corpus: Corpus, size: int) -> Library:
    """Byte-pair encoding on bytes, as GPT-2 does it: all 256 bytes are tokens from the start."""
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[*SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    return trained(byte_level(models.BPE(), corpus), corpus, trainer)


def byte_level(model: models.BPE, corpus: Corpus) -> Library:
    """A tokenizer around a byte-level model."""
    return assembled(model, corpus, pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel())


def wordpiece(corpus: Corpus, size: int) -> Library:
    """Word pieces, learned as byte pairs on words whose first letter is marked.

    The library's word piece trainer numbers the ## letters in the order of a hash table, which differs in every run;
    its byte-pair trainer sorts them. So the start of each word is marked instead, and turned into ## afterwards.
    """
    marked = pre_tokenizers.Sequence([PLAIN_WORDS, pre_tokenizers.Metaspace(WORD_START, split=False)])
    trainer = trainers.BpeTrainer(vocab_size=size + 1, show_progress=False)
    pairs = trained(assembled(models.BPE(), corpus, marked, None), corpus, trainer).get_vocab()
    ordered = sorted(pairs.keys() - {WORD_START}, key=pairs.__getitem__)
    letters = [piece for piece in ordered if len(piece) == 1]
    needed = [*SPECIALS, *letters, *(f"##{letter}" for letter in letters)]
    pieces = (piece[1:] if piece.startswith(WORD_START) else f"##{piece}" for piece in ordered)
    learned = list(dict.fromkeys([*needed, *pieces]))
    vocabulary = {token: index for index, token in enumerate(learned[: max(size, len(needed))])}
    return assembled(models.WordPiece(vocab=vocabulary, unk_token=UNKNOWN), corpus, PLAIN_WORDS, JOIN_WORDS)


def unigram(corpus: Corpus, size: int) -> Library:
    """A unigram language model over pieces, pruned until `size` of them are left."""
    joined = decoders.Metaspace(SPACE)
    library = assembled(models.Unigram(), corpus, SPACED_CHUNKS, joined)
    trainer = trainers.UnigramTrainer(
        vocab_size=size, special_tokens=[*SPECIALS], unk_token=UNKNOWN, show_progress=False
    )
    try:
        trained(library, corpus, trainer)
    except Exception as problem:  # the library raises plain exceptions
        if "not large enough" not in str(problem):
            raise
        raise too_small(size, len(SPECIALS) + len({SPACE, *corpus.characters()} - {" "})) from None
    learned = [(piece, score) for piece, score in json.loads(library.to_str())["model"]["vocab"]]
    model = models.Unigram(settled(learned), unk_id=SPECIALS.index(UNKNOWN))
    return assembled(model, corpus, SPACED_CHUNKS, joined)


def settled(scored: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Make a unigram vocabulary independent of the order in which the trainer visited the words.

    The trainer walks a hash table that differs in every run: sums of logarithms differ in their last digits, and
    characters too rare for a score get one of the lowest at random, 0.0001 apart. So scores are rounded, and those
    characters all get the lowest.
    """
    special, learned = scored[: len(SPECIALS)], scored[len(SPECIALS) :]
    lowest = min((score for _, score in learned), default=0.0)
    reach = lowest + 0.0001 * sum(len(piece) == 1 for piece, _ in learned)
    rounded = [(piece, round(lowest if len(piece) == 1 and score < reach else score, 4)) for piece, score in learned]
    return special + sorted(rounded, key=lambda item: (-item[1], item[0]))


def assembled(
    model: models.Model, corpus: Corpus, cut: pre_tokenizers.PreTokenizer | None, join: decoders.Decoder | None
) -> Library:
    """A tokenizer of its parts in order: normaliser, pre-tokenizer, model, decoder."""
    library = Library(model)
    library.normalizer = corpus.normalizer
    library.pre_tokenizer = cut
    library.decoder = join
    return library


def trained(library: Library, corpus: Corpus, trainer: trainers.Trainer) -> Library:
    """Train the library's tokenizer on the corpus, and return it."""
    library.train_from_iterator(corpus, trainer)
    return library


def too_small(size: int, needed: int) -> TextError:
    """The error about a vocabulary size below the number of required tokens."""
    return TextError(
        f"size={size} is too small: {len(SPECIALS)} special tokens and {needed - len(SPECIALS)} single characters "
        f"need {needed}; give at least that"
    )


SCHEMES: dict[TokenizerKind, Scheme] = {
    "char": char,
    "word": word,
    "bpe": bpe,
    "bytes": byte_bpe,
    "wordpiece": wordpiece,
    "unigram": unigram,
}
