"""The grammar behind the pairs: sentences written by hand, built through it, must come out as a teacher would say."""

from __future__ import annotations

import pytest

from builtin_data.pairs.adjectives import adjective
from builtin_data.pairs.circumstances import located
from builtin_data.pairs.clauses import ALREADY, ANYMORE, NEVER, STILL, YET, Clause, Form, Predicate, verb_phrase
from builtin_data.pairs.nouns import NOUNS, noun
from builtin_data.pairs.phrases import Phrase, conjunction, measured_noun, negated_noun, noun_phrase, possessed_noun
from builtin_data.pairs.sentences import contracted
from builtin_data.pairs.shorthand import predicate
from builtin_data.pairs.spanish_verbs import Person, Tense, command, conjugate, gerund, participle
from builtin_data.pairs.states import ESTAR, TENER, be_predicate
from builtin_data.pairs.subjects import EVERYONE, HE, NOBODY, SHE, THEY, WE, YOU, YOU_ALL, I
from builtin_data.pairs.verbs import verb

from .phrases import AT_HOME, BREAD, a, the

STATEMENTS: list[tuple[Clause | Phrase, str, str]] = [
    # forms of the verb
    (Clause(WE, BREAD, Form.CONTINUOUS), "we are eating bread", "estamos comiendo pan"),
    (Clause(I, BREAD, Form.PRESENT), "I eat bread", "como pan"),
    (Clause(YOU, BREAD, Form.PRESENT), "you eat bread", "comes pan"),
    (Clause(HE, BREAD, Form.PRESENT), "he eats bread", "él come pan"),
    (Clause(THEY, BREAD, Form.PAST), "they ate bread", "ellos comieron pan"),
    (Clause(SHE, BREAD, Form.FUTURE), "she will eat bread", "ella comerá pan"),
    (Clause(WE, BREAD, Form.PERFECT), "we have eaten bread", "hemos comido pan"),
    (Clause(YOU_ALL, BREAD, Form.GOING), "you all are going to eat bread", "ustedes van a comer pan"),
    (Clause(I, BREAD, Form.WAS), "I was eating bread", "estaba comiendo pan"),
    (Clause(WE, BREAD, Form.USED), "we used to eat bread", "comíamos pan"),
    (Clause(SHE, BREAD, Form.JUST), "she has just eaten bread", "ella acaba de comer pan"),
    (Clause(YOU, BREAD, Form.SHOULD), "you should eat bread", "deberías comer pan"),
    (Clause(I, BREAD, Form.HAVE_TO), "I have to eat bread", "tengo que comer pan"),
    (Clause(HE, BREAD, Form.WANT), "he wants to eat bread", "él quiere comer pan"),
    (Clause(I, BREAD, Form.CAN), "I can eat bread", "puedo comer pan"),
    (Clause(WE, BREAD, Form.MUST), "we must eat bread", "debemos comer pan"),
    (Clause(HE, BREAD, Form.PREFER), "he prefers to eat bread", "él prefiere comer pan"),
    # irregular verbs
    (Clause(I, verb_phrase(verb("bring"), a("a gift")), Form.PRESENT), "I bring a gift", "traigo un regalo"),
    (Clause(THEY, predicate("tell + the truth"), Form.PAST), "they told the truth", "ellos dijeron la verdad"),
    (Clause(HE, verb_phrase(verb("sleep")), Form.PAST), "he slept", "él durmió"),
    (Clause(I, verb_phrase(verb("do the homework")), Form.PAST), "I did the homework", "hice la tarea"),
    (Clause(SHE, predicate("order + soup"), Form.PAST), "she ordered soup", "ella pidió sopa"),
    (Clause(I, predicate("look for + the key"), Form.PAST), "I looked for the key", "busqué la llave"),
    (Clause(HE, predicate("read + the letter"), Form.PERFECT), "he has read the letter", "él ha leído la carta"),
    # agreement and word order in the noun phrase
    (
        Clause(the("the girl", "little"), predicate("read + a book"), Form.CONTINUOUS),
        "the little girl is reading a book",
        "la niña pequeña está leyendo un libro",
    ),
    (
        Clause(WE, verb_phrase(verb("wash", "lavar"), a("the car", "red", plural=True)), Form.CONTINUOUS),
        "we are washing the red cars",
        "estamos lavando los coches rojos",
    ),
    (
        Clause(I, verb_phrase(verb("drink"), a("the water", "cold")), Form.PAST),
        "I drank the cold water",
        "bebí el agua fría",
    ),
    (
        Clause(I, verb_phrase(verb("draw"), a("a eagle", "big")), Form.GOING),
        "I am going to draw a big eagle",
        "voy a dibujar un águila grande",
    ),
    (
        Clause(SHE, verb_phrase(verb("read"), a("a book", "good")), Form.CONTINUOUS),
        "she is reading a good book",
        "ella está leyendo un buen libro",
    ),
    (
        Clause(SHE, verb_phrase(verb("watch"), a("a film", "good")), Form.CONTINUOUS),
        "she is watching a good film",
        "ella está viendo una buena película",
    ),
    (
        Clause(I, verb_phrase(verb("read"), a("the lesson", "first")), Form.GOING),
        "I am going to read the first lesson",
        "voy a leer la primera lección",
    ),
    (
        Clause(I, verb_phrase(verb("read"), a("the book", "first")), Form.GOING),
        "I am going to read the first book",
        "voy a leer el primer libro",
    ),
    (
        Clause(WE, verb_phrase(verb("need"), noun_phrase("another", noun("lamp"))), Form.PRESENT),
        "we need another lamp",
        "necesitamos otra lámpara",
    ),
    (
        Clause(the("our teacher"), verb_phrase(verb("explain"), a("this problem", plural=True)), Form.PRESENT),
        "our teacher explains these problems",
        "nuestro profesor explica estos problemas",
    ),
    (
        Clause(HE, verb_phrase(verb("repair"), possessed_noun(a("my brother"), noun("car"))), Form.CONTINUOUS),
        "he is repairing my brother's car",
        "él está reparando el coche de mi hermano",
    ),
    (
        Clause(HE, verb_phrase(verb("read"), possessed_noun(a("the teacher"), noun("book"))), Form.CONTINUOUS),
        "he is reading the teacher's book",
        "él está leyendo el libro del profesor",
    ),
    (
        Clause(I, verb_phrase(verb("drink"), measured_noun("a", noun("cup"), noun("coffee"))), Form.WANT),
        "I want to drink a cup of coffee",
        "quiero beber una taza de café",
    ),
    # negation and adverbs
    (
        Clause(I, verb_phrase(verb("eat"), a("the meat")), Form.PRESENT, negative=True),
        "I do not eat the meat",
        "no como la carne",
    ),
    (
        Clause(WE, verb_phrase(verb("buy"), negated_noun(noun("book"))), Form.PAST, negative=True),
        "we did not buy any books",
        "no compramos ningún libro",
    ),
    (
        Clause(WE, verb_phrase(verb("buy"), negated_noun(noun("apple"))), Form.PAST, negative=True),
        "we did not buy any apples",
        "no compramos ninguna manzana",
    ),
    (
        Clause(the("my father"), predicate("eat + meat"), Form.PRESENT, adverb=NEVER),
        "my father never eats meat",
        "mi padre nunca come carne",
    ),
    (Clause(WE, verb_phrase(verb("eat")), Form.PERFECT, adverb=ALREADY), "we have already eaten", "ya hemos comido"),
    (
        Clause(the("my sister"), verb_phrase(verb("eat")), Form.PERFECT, True, YET),
        "my sister has not eaten yet",
        "mi hermana todavía no ha comido",
    ),
    (
        Clause(HE, verb_phrase(verb("sleep")), Form.CONTINUOUS, adverb=STILL),
        "he is still sleeping",
        "él todavía está durmiendo",
    ),
    (
        Clause(SHE, predicate("speak + French"), Form.PRESENT, True, ANYMORE),
        "she does not speak French anymore",
        "ella ya no habla francés",
    ),
    (Clause(NOBODY, verb_phrase(verb("sleep")), Form.CONTINUOUS), "nobody is sleeping", "nadie está durmiendo"),
    (Clause(EVERYONE, verb_phrase(verb("sleep")), Form.CONTINUOUS), "everyone is sleeping", "todos están durmiendo"),
    # ser, estar and tener
    (
        Clause(I, Predicate(TENER, "hungry", "hambre"), Form.PRESENT, True, YET),
        "I am not hungry yet",
        "todavía no tengo hambre",
    ),
    (
        Clause(SHE, Predicate(TENER, "very thirsty", "mucha sed"), Form.PAST),
        "she was very thirsty",
        "ella tenía mucha sed",
    ),
    (Clause(SHE, be_predicate(SHE, adjective("tired")), Form.PRESENT), "she is tired", "ella está cansada"),
    (Clause(I, be_predicate(I, adjective("tired")), Form.PRESENT), "I am tired", "estoy cansado"),
    (
        Clause(THEY, be_predicate(THEY, adjective("tall"), very=True), Form.PRESENT),
        "they are very tall",
        "ellos son muy altos",
    ),
    (
        Clause(the("the film"), be_predicate(the("the film"), adjective("boring")), Form.PRESENT),
        "the film is boring",
        "la película es aburrida",
    ),
    (
        Clause(the("the girl"), be_predicate(the("the girl"), adjective("bored")), Form.PRESENT),
        "the girl is bored",
        "la niña está aburrida",
    ),
    (
        Clause(the("the soup"), be_predicate(the("the soup"), adjective("cold")), Form.PAST),
        "the soup was cold",
        "la sopa estaba fría",
    ),
    (
        Clause(the("my brother"), Predicate(ESTAR).followed_by(AT_HOME), Form.PRESENT),
        "my brother is at home",
        "mi hermano está en casa",
    ),
    (
        Clause(the("the dog"), Predicate(ESTAR).followed_by(located("under", "tree")), Form.PRESENT),
        "the dog is under the tree",
        "el perro está debajo del árbol",
    ),
]


@pytest.mark.parametrize(("made", "english", "spanish"), STATEMENTS, ids=[row[1] for row in STATEMENTS])
def test_statements(made: Clause | Phrase, english: str, spanish: str) -> None:
    told = made.statement() if isinstance(made, Clause) else made
    assert (told.english, told.spanish) == (english, spanish)


TABLES: list[tuple[str, Tense, str]] = [
    ("hablar", "present", "hablo hablas habla hablamos hablan"),
    ("vivir", "present", "vivo vives vive vivimos viven"),
    ("tener", "present", "tengo tienes tiene tenemos tienen"),
    ("dormir", "present", "duermo duermes duerme dormimos duermen"),
    ("elegir", "present", "elijo eliges elige elegimos eligen"),
    ("conocer", "present", "conozco conoces conoce conocemos conocen"),
    ("enviar", "present", "envío envías envía enviamos envían"),
    ("construir", "present", "construyo construyes construye construimos construyen"),
    ("jugar", "preterite", "jugué jugaste jugó jugamos jugaron"),
    ("empezar", "preterite", "empecé empezaste empezó empezamos empezaron"),
    ("buscar", "preterite", "busqué buscaste buscó buscamos buscaron"),
    ("pedir", "preterite", "pedí pediste pidió pedimos pidieron"),
    ("hacer", "preterite", "hice hiciste hizo hicimos hicieron"),
    ("querer", "preterite", "quise quisiste quiso quisimos quisieron"),
    ("leer", "preterite", "leí leíste leyó leímos leyeron"),
    ("ver", "imperfect", "veía veías veía veíamos veían"),
    ("ir", "imperfect", "iba ibas iba íbamos iban"),
    ("poner", "future", "pondré pondrás pondrá pondremos pondrán"),
    ("comer", "future", "comeré comerás comerá comeremos comerán"),
    ("dormir", "subjunctive", "duerma duermas duerma durmamos duerman"),
    ("tocar", "subjunctive", "toque toques toque toquemos toquen"),
    ("volver", "subjunctive", "vuelva vuelvas vuelva volvamos vuelvan"),
    ("jugar", "subjunctive", "juegue juegues juegue juguemos jueguen"),
    ("hacer", "subjunctive", "haga hagas haga hagamos hagan"),
]


@pytest.mark.parametrize(("infinitive", "tense", "forms"), TABLES)
def test_conjugation(infinitive: str, tense: Tense, forms: str) -> None:
    assert [conjugate(infinitive, tense, person) for person in Person] == forms.split()


def test_the_other_forms_of_a_verb() -> None:
    assert [gerund(word) for word in ("hablar", "leer", "pedir", "dormir")] == [
        "hablando",
        "leyendo",
        "pidiendo",
        "durmiendo",
    ]
    assert [participle(word) for word in ("comer", "escribir", "ver")] == ["comido", "escrito", "visto"]
    assert [command(word) for word in ("abrir", "salir", "decir")] == ["abre", "sal", "di"]


def test_english_plurals() -> None:
    wanted = {
        "man": "men", "child": "children", "mouse": "mice", "knife": "knives", "scarf": "scarves", "foot": "feet",
        "city": "cities", "boy": "boys", "box": "boxes", "bus": "buses", "watch": "watches", "potato": "potatoes",
        "photo": "photos", "radio": "radios", "mathematics": "mathematics", "shoes": "shoes", "actress": "actresses",
    }  # fmt: skip
    assert {name: noun(name).english_plural for name in wanted} == wanted
    irregular = set(wanted.values())
    assert all(word.english_plural.endswith("s") or word.english_plural in (*irregular, "women") for word in NOUNS)


def test_spanish_plurals() -> None:
    wanted = {
        "lápiz": "lápices", "luz": "luces", "canción": "canciones", "autobús": "autobuses", "árbol": "árboles",
        "examen": "exámenes", "reloj": "relojes", "sofá": "sofás", "paraguas": "paraguas", "jardín": "jardines",
        "suéter": "suéteres", "actriz": "actrices", "ciudad": "ciudades", "tía": "tías", "sándwich": "sándwiches",
    }  # fmt: skip
    plurals = {word.spanish: word.spanish_plural for word in NOUNS}
    assert {name: plurals[name] for name in wanted} == wanted


def test_conjunctions_give_way_to_their_own_sound() -> None:
    assert [conjunction("y", word) for word in ("Inés", "hijo", "hielo", "Ana")] == ["e", "e", "y", "y"]
    assert [conjunction("o", word) for word in ("ocho", "siete")] == ["u", "o"]


def test_contractions_keep_the_words_they_cannot_join() -> None:
    assert contracted("she is not at home") == "she's not at home"
    assert contracted("my brother is not at home") == "my brother isn't at home"
    assert contracted("where are they?") == "where are they?"
