"""Verbs: the objects that they take, the places where they happen, and the forms in which they make sense.

A line of ACTIONS reads `english | spanish | flags | kinds of object | places`. Flags:
    alone     also used without an object
    adult     not used of children
    sense     not continuous: I see, not I am seeing
    event     neither continuous nor a habit: I found
    accident  only in the past: I lost
    state     only the present: I have
    unwilled  involuntary: I cry
    bulk      used with amounts: I buy two apples
    one       used with one thing at a time: I wear a hat
    plain     continuous in English, simple in Spanish: I am going, voy
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from builtin_data.table import rows

ACTIONS = """
eat              | comer        | alone       | food                             | meal
drink            | beber        |             | drink                            | meal
drink            | beber        | adult       | alcohol                          | dine
buy              | comprar      | bulk        | grocery vegetable fruit sweet    | market
buy              | comprar      |             | clothes thing gift               | shopping
buy              | comprar      | adult       | vehicle furniture device pet dwelling |
sell             | vender       | adult       | vehicle furniture                |
sell             | vender       | adult bulk  | fruit vegetable clothes gift     | market
cook             | cocinar      | alone adult | dish                             | cook
prepare          | preparar     | adult       | meal prepared                    | cook
cut              | cortar       |             | fruit vegetable sliced           | cook
taste            | probar       | event       | food                             |
order            | pedir        |             | order                            | dine
serve            | servir       | adult       | meal order                       | dine
read             | leer         | alone       | readable                         | reading
write            | escribir     | alone       | written                          | reading
watch            | ver          |             | watched                          | home
look at          | mirar        |             | seen sky                         |
listen to        | escuchar     |             | heard                            | home
sing             | cantar       | alone       | sung                             | leisure
play             | tocar        |             | instrument                       | leisure
play             | jugar a      |             | game                             | outdoors
study            | estudiar     | alone       | language science                 | study
learn            | aprender     |             | language                         | study
speak            | hablar       | sense       | language                         |
teach            | enseñar      | adult       | language science                 | study
understand       | entender     | sense       | asked                            |
explain          | explicar     |             | asked                            |
remember         | recordar     | sense       | named asked told                 |
open             | abrir        |             | opened                           |
close            | cerrar       |             | opened                           |
clean            | limpiar      |             | room furniture surface           |
wash             | lavar        |             | clothes kitchenware vehicle      |
paint            | pintar       |             | surface furniture                |
draw             | dibujar      | alone       | drawn animal plant               | reading
build            | construir    | adult       | building span                    |
repair           | reparar      | adult       | vehicle device furniture         |
drive            | manejar      | adult one   | driven                           |
use              | usar         |             | device tool stationery           |
carry            | cargar       |             | carried                          |
wear             | llevar       | plain one   | clothes                          |
bring            | traer        |             | order sweet gift sendable        |
send             | enviar       |             | sendable                         |
receive          | recibir      | accident    | sendable gift                    |
look for         | buscar       |             | lost small_thing clothes         |
find             | encontrar    | event       | lost small_thing clothes         |
lose             | perder       | accident    | lost                             |
forget           | olvidar      | accident    | lost named                       |
break            | romper       | accident    | fragile                          |
turn on          | encender     |             | light device                     |
turn off         | apagar       |             | light device                     |
pay              | pagar        | adult       | paid                             |
choose           | elegir       |             | clothes gift sweet               | shopping
see              | ver          | sense       | wild farm seen building span     |
visit            | visitar      |             | building town                    |
want             | querer       | state       | food drink clothes gift vehicle  |
need             | necesitar    | state       | money leisure aid clothes small_thing device tool |
have             | tener        | state       | pet vehicle device small_thing sibling owned_idea money leisure |
know             | conocer      | state       | town                             |
know             | saber        | state       | known named                            |
tell             | contar       |             | told                             |
tell             | decir        |             | told_truth                       |
"""

# The object is a person, with the personal `a`.
WITH_PEOPLE = """
see              | ver          | sense       | human        | out
visit            | visitar      |             | related      | daily
help             | ayudar       |             | human pet    | home
call             | llamar       |             | human        |
wait for         | esperar      |             | human        | waiting
look for         | buscar       |             | human pet    | out
find             | encontrar    | event       | human pet    | out
love             | querer       | state       | related pet  |
know             | conocer      | state       | human        |
hug              | abrazar      |             | related pet  |
kiss             | besar        |             | family       |
invite           | invitar      |             | related      |
greet            | saludar      |             | human        | out
listen to        | escuchar     |             | human        |
understand       | entender     | sense       | human        |
take care of     | cuidar       |             | related pet  | home
remember         | recordar     | sense       | human        |
"""

# Without an object; the Spanish may be a phrase or reflexive.
INTRANSITIVE = """
sleep            | dormir       |             |              | rest
rest             | descansar    |             |              | rest
work             | trabajar     | adult       |              | work
run              | correr       |             |              | outdoors
walk             | caminar      |             |              | outdoors
swim             | nadar        |             |              | swim
dance            | bailar       |             |              | leisure
cry              | llorar       | unwilled    |              | home
sing             | cantar       |             |              | leisure
travel           | viajar       |             |              |
have breakfast   | desayunar    |             |              | meal
have lunch       | almorzar     |             |              | meal
have dinner      | cenar        |             |              | meal
get up           | levantarse   |             |              |
wake up          | despertarse  |             |              |
go to bed        | acostarse    |             |              |
get dressed      | vestirse     |             |              |
take a shower    | ducharse     |             |              |
sit down         | sentarse     | event       |              |
take a walk      | dar un paseo |             |              | outdoors
take a nap       | tomar una siesta |         |              | rest
take photos      | tomar fotos  |             |              | outdoors
ask a question   | hacer una pregunta |       |              | study
make the bed     | hacer la cama |            |              |
set the table    | poner la mesa |            |              |
do the homework  | hacer la tarea |           |              | study
make a cake      | hacer un pastel | adult    |              | cook
go shopping      | ir de compras | plain adult |             |
watch television | ver televisión |           |              | home
listen to the radio | escuchar la radio |     |              | home
play cards       | jugar a las cartas |       |              | leisure
talk on the phone | hablar por teléfono |     |              | home
ride a horse     | montar a caballo |         |              | outdoors
wash the dishes  | lavar los platos |         |              | cook
water the plants | regar las plantas |
"""

# With a destination or an origin; the Spanish ends in its preposition.
MOTION = """
go               | ir a         | plain       | to
return           | volver a     | plain event | to
arrive           | llegar a     | plain event | at
travel           | viajar a     |             | to
run              | correr a     |             | to
walk             | caminar a    |             | to
come             | venir de     | plain       | from
come back        | volver de    | plain event | from
leave            | salir de     | plain event |
"""


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb in both languages, and what it combines with."""

    english: str
    infinitive: str
    spanish_after: str  # between the Spanish verb and its object: `a` in `jugar a`
    reflexive: bool
    flags: frozenset[str]
    objects: str  # kinds of noun, separated by spaces
    places: str
    personal: bool = False  # whether people and pets as its object take the personal `a`

    @property
    def same_past(self) -> bool:
        """Whether present and past have the same form: `they cut`."""
        return self.english in ("read", "cut", "set the table", "put on")


def _verb(english: str, spanish: str, flags: str = "", objects: str = "", places: str = "") -> Verb:
    infinitive, _, after = spanish.partition(" ")
    reflexive = infinitive.endswith("se")
    return Verb(english, infinitive.removesuffix("se"), after, reflexive, frozenset(flags.split()), objects, places)


def _read(table: str) -> tuple[Verb, ...]:
    return tuple(_verb(*cells) for cells in rows(table, 5))


TAKING_THINGS = _read(ACTIONS)
TAKING_PEOPLE = tuple(replace(word, personal=True) for word in _read(WITH_PEOPLE))
TAKING_NOTHING = _read(INTRANSITIVE)
MOVING = tuple(_verb(english, spanish, flags) for english, spanish, flags, _ in rows(MOTION, 4))
PREPOSITIONS = {english: preposition for english, _, _, preposition in rows(MOTION, 4)}
VERBS = TAKING_THINGS + TAKING_PEOPLE + TAKING_NOTHING + MOVING


@cache
def verb(english: str, spanish: str = "") -> Verb:
    """The verb with this English; the Spanish infinitive distinguishes homographs."""
    return next(word for word in VERBS if word.english == english and spanish in ("", word.infinitive))


def plain_verb(english: str, spanish: str) -> Verb:
    """A verb outside the tables, for a single sentence pattern."""
    return _verb(english, spanish)
