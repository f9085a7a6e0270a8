"""The English-Spanish pairs, checked against a small Spanish lexicon of this file's own."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise

import pytest

from builtin_data.pairs import pairs
from builtin_data.pairs.sentences import sentences
from clearhead.data import builtin
from clearhead.data.examples import Pair

MASCULINE_WORDS = """
hombre niño estudiante profesor médico abogado mesero ingeniero panadero campesino escritor cantante pintor actor
dentista policía turista amigo vecino primo hermano tío padre abuelo perro gato caballo cerdo conejo pato pájaro
ratón león oso mono elefante plátano durazno limón huevo tomate sándwich pastel pan queso arroz pescado pollo
chocolate helado café té vino jugo desayuno almuerzo libro periódico poema mensaje informe artículo programa video
partido piano violín fútbol tenis baloncesto ajedrez español inglés francés italiano portugués chino nombre
ejercicio problema idioma examen vestido abrigo sombrero suéter zapato calcetín bolígrafo lápiz cuaderno paraguas
reloj anillo juguete cuadro mapa boleto regalo cuchillo plato teléfono coche camión autobús tren avión sofá
escritorio espejo piso martillo dinero tiempo árbol mar parque mercado restaurante hospital museo banco hotel cine
teatro aeropuerto río lago bosque pueblo puente jardín baño comedor estómago brazo pie ojo vaso pedazo kilo trabajo
día mes
"""
MASCULINE = MASCULINE_WORDS.split()
FEMININE_WORDS = """
mujer niña enfermera mesera actriz hermana tía madre abuela vaca cabra águila mariposa manzana naranja pera fresa
uva papa zanahoria cebolla hamburguesa pizza ensalada galleta carne sopa fruta agua leche cerveza limonada cena
novela revista carta historia película canción música guitarra flauta trompeta biología química geografía literatura
matemática pregunta respuesta verdad palabra lección idea clase camisa falda chaqueta corbata bufanda bota llave
cartera bolsa maleta caja mochila pelota flor foto cuchara taza botella computadora cámara lámpara luz televisión
radio bicicleta motocicleta mesa silla cama puerta ventana pared hacha ayuda cuenta estrella luna casa escuela
tienda panadería farmacia biblioteca iglesia oficina universidad estación playa plaza ciudad calle cocina sala
habitación aula cabeza espalda garganta pierna mano tarea semana mañana tarde noche siesta compra planta
"""
FEMININE = FEMININE_WORDS.split()
TONIC = {"agua", "águila", "aula", "hacha"}  # feminine, and yet el agua, un águila

AGREEING = {
    "el": "ms", "la": "fs", "los": "mp", "las": "fp", "un": "ms", "una": "fs", "este": "ms", "esta": "fs",
    "estos": "mp", "estas": "fp", "ese": "ms", "esa": "fs", "esos": "mp", "esas": "fp", "nuestro": "ms",
    "nuestra": "fs",
    "nuestros": "mp", "nuestras": "fp", "mucho": "ms", "mucha": "fs", "muchos": "mp", "muchas": "fp", "algunos": "mp",
    "algunas": "fp", "varios": "mp", "varias": "fp", "otro": "ms", "otra": "fs", "ningún": "ms", "ninguna": "fs",
    "cuánto": "ms", "cuánta": "fs", "cuántos": "mp", "cuántas": "fp", "mi": "s", "tu": "s", "su": "s", "mis": "p",
    "tus": "p", "sus": "p", "dos": "p", "tres": "p", "cuatro": "p", "cinco": "p", "seis": "p", "diez": "p", "al": "ms",
    "del": "ms",
}  # fmt: skip

ADJECTIVES_WORDS = """
rojo amarillo blanco negro morado pequeño nuevo viejo caro barato hermoso bonito feo largo bajo corto pesado
delicioso frío limpio sucio roto abierto cerrado vacío lleno moderno tranquilo rápido lento alto delgado simpático
gracioso perezoso rico tímido famoso cansado enfermo ocupado enojado nervioso preocupado listo solo aburrido
mexicano argentino
"""
ADJECTIVES = ADJECTIVES_WORDS.split()


def plurals(word: str) -> set[str]:
    """Every shape a Spanish plural could have, right or wrong; the lexicon has no two nouns they would confuse."""
    plain = word[:-2] + word[-2:].translate(str.maketrans("áéíóú", "aeiou"))
    shapes = {word + "s", word + "es", plain + "es", word[:-1] + "ces"}
    return shapes | ({"exámenes"} if word == "examen" else set()) | ({word} if word.endswith("s") else set())


LEXICON: dict[str, tuple[str, str]] = {}  # form -> gender, number
for gender, nouns in (("m", MASCULINE), ("f", FEMININE)):
    for noun in nouns:
        LEXICON.update(dict.fromkeys(plurals(noun), (gender, "p")))
for gender, nouns in (("m", MASCULINE), ("f", FEMININE)):
    LEXICON.update(dict.fromkeys(nouns, (gender, "s")))
LEXICON["paraguas"] = ("m", "")  # one or many

QUALITIES: dict[str, str] = {}  # form -> gender and number
for word in ADJECTIVES:
    QUALITIES |= {word: "ms", word[:-1] + "a": "fs", word + "s": "mp", word[:-1] + "as": "fp"}

VERBS_TOO = {"limpia", "limpias", "corta", "cortas"}  # she cleans, you cut

PRONOUNS = {"me", "te", "lo", "la", "le", "nos", "los", "las", "les", "se"}
BEFORE_VERB = {"no", "siempre", "nunca", "casi", "ya", "todavía", "también"} | PRONOUNS


@pytest.fixture(scope="module")
def data() -> tuple[Pair, ...]:
    return tuple(builtin.examples("pairs"))


def split(sentence: str) -> list[str]:
    return re.findall(r"\w+", sentence)


def neighbours(data: tuple[Pair, ...]) -> Iterator[tuple[str, str, Pair]]:
    for pair in data:
        for first, second in pairwise(split(pair.target)):
            yield first, second, pair


def fits(form: str, word: str) -> bool:
    """Whether a form such as `ms` agrees with a noun of the lexicon."""
    gender, number = LEXICON[word]
    return all(sign in form or other not in form for sign, other in ((gender, "mf".replace(gender, "")),)) and (
        not number or number in form
    )


def test_there_are_enough_and_every_source_is_there_once(data: tuple[Pair, ...]) -> None:
    assert len(data) >= 40_000
    assert max(Counter(pair.source for pair in data).values()) == 1
    assert all(pair.source and pair.target for pair in data)


def test_the_lectures_sentences_are_there_exactly(data: tuple[Pair, ...]) -> None:
    told = {pair.source: pair.target for pair in data}
    assert told["we are eating bread"] == "estamos comiendo pan"
    assert told["I'm not hungry yet"] == "todavía no tengo hambre"
    assert told["I'm not thirsty yet"] == "todavía no tengo sed"
    assert told["I'm not cold yet"] == "todavía no tengo frío"
    assert told["I'm not hot yet"] == "todavía no tengo calor"
    assert told["I'm not sleepy yet"] == "todavía no tengo sueño"
    assert told["I'm not tired yet"] == "todavía no estoy cansado"


def test_it_is_the_same_every_time_and_quick(data: tuple[Pair, ...]) -> None:
    start = time.process_time()
    again = pairs()
    assert time.process_time() - start < 20, "should take one second; more on a slow machine or while it is traced"
    assert again == data


def test_the_grammar_is_a_function_from_english_to_spanish() -> None:
    told: dict[str, str] = {}
    for sentence in islice(sentences(seed=12), 60_000):
        assert told.setdefault(sentence.english, sentence.spanish) == sentence.spanish, sentence.english


def test_the_stream_is_lazy_and_depends_only_on_the_seed() -> None:
    assert list(islice(sentences(3), 50)) == list(islice(sentences(3), 50))
    assert list(islice(sentences(3), 50)) != list(islice(sentences(4), 50))


def test_lengths_vary(data: tuple[Pair, ...]) -> None:
    lengths = Counter(len(pair.source.split()) for pair in data)
    assert min(lengths) == 2
    assert max(lengths) == 14
    assert all(lengths[length] > 200 for length in range(2, 14))


def test_spelling_follows_the_convention(data: tuple[Pair, ...]) -> None:
    for pair in data:
        for text in (pair.source, pair.target):
            assert text == " ".join(text.split()), text
            assert not re.search(r"[.!;:\"-]", text), text
        asked = pair.source.endswith("?")
        assert pair.target.startswith("¿") == pair.target.endswith("?") == asked, pair
        assert pair.source.count("?") == pair.target.count("¿") == asked, pair
        assert pair.source[0].islower() or pair.source.split()[0].split("'")[0] in CAPITALS, pair
        assert all(word.islower() or word in SPANISH_CAPITALS for word in split(pair.target)), pair


CAPITALS_WORDS = """
I Ana Carmen Elena Ines Isabel Lucia Maria Rosa Carlos Diego Jorge Luis Manuel Miguel Pablo Pedro
"""
CAPITALS = frozenset(CAPITALS_WORDS.split())
SPANISH_CAPITALS_WORDS = """
Ana Carmen Elena Inés Isabel Lucía María Rosa Carlos Diego Jorge Luis Manuel Miguel Pablo Pedro México España Perú
Chile Colombia Argentina Canadá Francia Italia Alemania Japón Brasil Londres Madrid Lima París
"""
SPANISH_CAPITALS = frozenset(SPANISH_CAPITALS_WORDS.split())


def test_determiners_agree_with_their_nouns(data: tuple[Pair, ...]) -> None:
    seen = 0
    for first, second, pair in neighbours(data):
        if first not in AGREEING or second not in LEXICON:
            continue
        form = AGREEING[first]
        if second in TONIC and first in ("el", "un", "al", "del", "ningún"):
            continue
        assert not (second in TONIC and first in ("la", "una", "ninguna")), pair
        assert fits(form, second), f"{first} {second} in {pair}"
        seen += 1
    assert seen > 40_000


def test_adjectives_agree_with_the_noun_before_them(data: tuple[Pair, ...]) -> None:
    seen = 0
    for first, second, pair in neighbours(data):
        if first in LEXICON and second in QUALITIES and second not in VERBS_TOO:
            assert fits(QUALITIES[second], first), f"{first} {second} in {pair}"
            seen += 1
    assert seen > 3_000


def test_adjectives_agree_across_the_verb(data: tuple[Pair, ...]) -> None:
    pattern = re.compile(
        r"^¿?(?:el|la|los|las|est[eao]s?|es[eao]s?|mis?|tus?|sus?|nuestr[oa]s?) (\w+) "
        r"(?:(?:no|nunca|siempre|ya|todavía) )*(?:es|son|está|están|estaba|estaban) (?:muy |más |tan )?(\w+)\b"
    )
    seen = 0
    for pair in data:
        match = pattern.match(pair.target)
        if match and match[1] in LEXICON and match[2] in QUALITIES:
            assert fits(QUALITIES[match[2]], match[1]), pair
            seen += 1
    assert seen > 800


def test_pronouns_and_adjectives_agree(data: tuple[Pair, ...]) -> None:
    for pair in data:
        match = re.match(r"^¿?(ella|él|ellos) (?:\w+ )?(?:es|son|está|están) (?:muy )?(\w+)\b", pair.target)
        if match and match[2] in QUALITIES:
            assert QUALITIES[match[2]] == {"ella": "fs", "él": "ms", "ellos": "mp"}[match[1]], pair


def test_verbs_agree_with_the_pronoun_before_them(data: tuple[Pair, ...]) -> None:
    seen = Counter[str]()
    for pair in data:
        pronoun, *rest = split(pair.target)
        if pronoun in ("él", "ella", "ellos", "ustedes"):
            verb = next(token for token in rest if token not in BEFORE_VERB)
            assert verb.endswith("n") == (pronoun in ("ellos", "ustedes")), pair
            assert verb == "viste" or not verb.endswith(("mos", "aste", "iste")), pair
            seen[pronoun] += 1
    assert min(seen.values()) > 300


def test_the_english_subject_tells_the_person_of_the_spanish_verb(data: tuple[Pair, ...]) -> None:
    auxiliaries = {"I": "estoy", "you": "estás", "he": "está", "she": "está", "we": "estamos", "they": "están"}
    seen = 0
    for pair in data:
        match = re.match(r"^(I|you|he|she|we|they) (?:am|are|is) (?!going|coming|wearing)\w+ing\b", pair.source)
        if match and re.search(r"\w+(?:ando|iendo|yendo)\b", pair.target) and " and " not in pair.source:
            assert auxiliaries[match[1]] in split(pair.target), pair
            seen += 1
    assert seen > 300


def test_contractions_are_made(data: tuple[Pair, ...]) -> None:
    for pair in data:
        assert not re.search(r"\b(?:a|de) el\b", pair.target), pair
        assert not re.search(r"\by (?:i|hi(?!e))", pair.target.lower()), pair
    joined = " ".join(pair.target for pair in data)
    assert " al " in joined
    assert " del " in joined
    assert " e I" in joined


def test_negation_is_on_both_sides(data: tuple[Pair, ...]) -> None:
    negative = re.compile(r"\b(?:not|cannot|never|nobody|\w+n't|any)\b")
    for pair in data:
        spanish = bool(re.search(r"\b(?:no|nunca|nadie)\b", pair.target))
        assert bool(negative.search(pair.source)) == spanish, pair


def test_people_as_objects_take_the_personal_a(data: tuple[Pair, ...]) -> None:
    kin = r"(?:mother|father|brother|sister|aunt|uncle|cousin|grandmother|grandfather)"
    verbs = r"(?:visit|visits|visited|visiting|help|helps|helped|helping|hug|hugged|hugging|kiss|kissed|kissing)"
    pattern = re.compile(rf"\b{verbs} (?:my|your|his|her|our|their) {kin}\b")
    seen = 0
    for pair in data:
        if pattern.search(pair.source):
            assert re.search(r" a (?:mi|tu|su|nuestr[oa]) \w+", pair.target), pair
            seen += 1
    assert seen > 100


def test_what_one_has_takes_no_personal_a(data: tuple[Pair, ...]) -> None:
    for pair in data:
        if re.search(r"\b(?:have|has) (?:two|three|four|many) (?:brothers|sisters|cousins|friends)", pair.source):
            assert not re.search(r"tiene\w* a |tengo a |tenemos a ", pair.target), pair


IRREGULAR_WORDS = """
tengo tienes voy vas va hago veo vi puedo puede quiero quieres digo dice duerme durmió come comió fue hizo fueron
trajo pidió leyó conozco sé empieza juega están estoy soy somos hay había dame haz pon ninguna ningún conmigo
contigo quién cuántas adónde gustan encantan duelen gustaría acabo deberías abierto roto escrito visto
"""


@pytest.mark.parametrize("word", IRREGULAR_WORDS.split())
def test_irregular_words_are_taught(data: tuple[Pair, ...], word: str) -> None:
    assert any(word in split(pair.target) for pair in data)
