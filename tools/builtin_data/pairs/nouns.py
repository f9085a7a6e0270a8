"""Nouns: English and Spanish, gender, and semantic kinds.

A line reads `english[/plural] | spanish[/plural] | gender | kinds`. Verbs and adjectives choose nouns by kind. Words
such as `friend`, which have two genders in Spanish, are always masculine here. Kinds with grammatical meaning: `mass`
has no plural, `pair` only a plural, `only` takes no article but `the`, `tonic` is feminine but takes `el` (el agua
fría), `human` and `pet` take the personal `a`, `bare` has no article in English and one in Spanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from builtin_data.table import rows

Gender = Literal["m", "f"]

PEOPLE = """
man/men                 | hombre      | m | human adult somebody
woman/women             | mujer       | f | human adult somebody
boy                     | niño        | m | human child somebody
girl                    | niña        | f | human child somebody
child/children          | niño        | m | human child somebody
student                 | estudiante  | m | human adult somebody
teacher                 | profesor    | m | human adult somebody
doctor                  | médico      | m | human adult somebody
nurse                   | enfermera   | f | human adult somebody
lawyer                  | abogado     | m | human adult somebody
waiter                  | mesero      | m | human adult somebody
waitress                | mesera      | f | human adult somebody
engineer                | ingeniero   | m | human adult somebody
baker                   | panadero    | m | human adult somebody
farmer                  | campesino   | m | human adult somebody
writer                  | escritor    | m | human adult somebody artist
singer                  | cantante    | m | human adult somebody artist
painter                 | pintor      | m | human adult somebody artist
actor                   | actor       | m | human adult somebody artist
actress                 | actriz      | f | human adult somebody artist
dentist                 | dentista    | m | human adult somebody
police officer          | policía     | m | human adult somebody
tourist                 | turista     | m | human adult somebody
friend                  | amigo       | m | human adult related several
neighbour               | vecino      | m | human adult related several
cousin                  | primo       | m | human adult related family several
brother                 | hermano     | m | human adult related family several sibling
sister                  | hermana     | f | human adult related family several sibling
uncle                   | tío         | m | human adult related family
aunt                    | tía         | f | human adult related family
mother                  | madre       | f | human adult related family
father                  | padre       | m | human adult related family
grandmother             | abuela      | f | human adult related family
grandfather             | abuelo      | m | human adult related family
parents/parents         | padres/padres | m | human adult related family pair
grandparents/grandparents | abuelos/abuelos | m | human adult related family pair
"""

ANIMALS = """
dog                     | perro       | m | pet animal
cat                     | gato        | m | pet animal
horse                   | caballo     | m | animal farm
cow                     | vaca        | f | animal farm
pig                     | cerdo       | m | animal farm
rabbit                  | conejo      | m | animal farm
duck                    | pato        | m | animal farm
goat                    | cabra       | f | animal farm
bird                    | pájaro      | m | animal wild
eagle                   | águila      | f | animal wild tonic
mouse/mice              | ratón       | m | animal wild
lion                    | león        | m | animal wild
bear                    | oso         | m | animal wild
monkey                  | mono        | m | animal wild
elephant                | elefante    | m | animal wild
butterfly               | mariposa    | f | animal wild
"""

FOOD = """
apple                   | manzana     | f | food fruit
orange                  | naranja     | f | food fruit
banana                  | plátano     | m | food fruit
pear                    | pera        | f | food fruit
strawberry              | fresa       | f | food fruit
peach                   | durazno     | m | food fruit
grape                   | uva         | f | food fruit
lemon                   | limón       | m | fruit grocery
egg                     | huevo       | m | food dish grocery
potato                  | papa        | f | food dish vegetable
tomato                  | tomate      | m | food vegetable
carrot                  | zanahoria   | f | food vegetable
onion                   | cebolla     | f | vegetable
sandwich                | sándwich/sándwiches | m | food order prepared
hamburger               | hamburguesa | f | food order
pizza                   | pizza       | f | food order dish
salad                   | ensalada    | f | food order prepared
cookie                  | galleta     | f | food sweet
cake                    | pastel      | m | food sweet sliced
bread                   | pan         | m | food mass grocery sliced
meat                    | carne       | f | food mass dish grocery sliced
cheese                  | queso       | m | food mass grocery sliced
rice                    | arroz       | m | food mass dish grocery
fish                    | pescado     | m | food mass dish grocery
chicken                 | pollo       | m | food mass dish grocery
soup                    | sopa        | f | food mass dish order warm prepared
fruit                   | fruta       | f | food mass grocery
chocolate               | chocolate   | m | food mass
ice cream               | helado      | m | food mass order
water                   | agua        | f | drink mass order warm tonic
coffee                  | café        | m | drink mass order warm prepared
milk                    | leche       | f | drink mass grocery warm
tea                     | té          | m | drink mass order warm prepared
wine                    | vino        | m | alcohol mass
beer                    | cerveza     | f | alcohol mass
juice                   | jugo        | m | drink mass order prepared
lemonade                | limonada    | f | drink mass order prepared
breakfast               | desayuno    | m | meal bare mass
lunch                   | almuerzo    | m | meal bare mass
dinner                  | cena        | f | meal bare mass
"""

WORDS_AND_ARTS = """
book                    | libro       | m | readable work thing gift
novel                   | novela      | f | readable work gift
newspaper               | periódico   | m | readable paper thing
magazine                | revista     | f | readable paper thing
letter                  | carta       | f | readable written sendable
poem                    | poema       | m | readable work written
story                   | historia    | f | readable work written told
message                 | mensaje     | m | readable written sendable
report                  | informe     | m | readable written
article                 | artículo    | m | readable written
film                    | película    | f | watched work
programme               | programa    | m | watched work
video                   | video       | m | watched
match                   | partido     | m | watched
song                    | canción     | f | heard work sung
music                   | música      | f | heard mass
guitar                  | guitarra    | f | instrument
piano                   | piano       | m | instrument
violin                  | violín      | m | instrument
flute                   | flauta      | f | instrument
trumpet                 | trompeta    | f | instrument
football                | fútbol      | m | game bare mass
tennis                  | tenis       | m | game bare mass
basketball              | baloncesto  | m | game bare mass
chess                   | ajedrez     | m | game bare mass
Spanish                 | español     | m | language mass
English                 | inglés      | m | language mass
French                  | francés     | m | language mass
Italian                 | italiano    | m | language mass
German                  | alemán      | m | language mass
Portuguese              | portugués   | m | language mass
Chinese                 | chino       | m | language mass
history                 | historia    | f | science mass
biology                 | biología    | f | science mass
chemistry               | química     | f | science mass
geography               | geografía   | f | science mass
literature              | literatura  | f | science mass
mathematics/mathematics | matemáticas/matemáticas | f | science pair
question                | pregunta    | f | asked
answer                  | respuesta   | f | known asked
truth                   | verdad      | f | only told_truth
name                    | nombre      | m | named
word                    | palabra     | f | asked
lesson                  | lección     | f | asked hard
exercise                | ejercicio   | m | asked hard
problem                 | problema    | m | owned_idea asked hard
idea                    | idea        | f | owned_idea
language                | idioma      | m | hard
exam                    | examen/exámenes | m | hard owned_idea
class                   | clase       | f | event
"""

THINGS = """
shirt                   | camisa      | f | clothes colourful
dress                   | vestido     | m | clothes colourful
skirt                   | falda       | f | clothes colourful
coat                    | abrigo      | m | clothes colourful
hat                     | sombrero    | m | clothes colourful
sweater                 | suéter      | m | clothes colourful
jacket                  | chaqueta    | f | clothes colourful
tie                     | corbata     | f | clothes colourful
scarf/scarves           | bufanda     | f | clothes colourful
shoes/shoes             | zapatos/zapatos | m | clothes colourful pair
boots/boots             | botas/botas | f | clothes colourful pair
socks/socks             | calcetines/calcetines | m | clothes colourful pair
pen                     | bolígrafo   | m | thing colourful small_thing stationery
pencil                  | lápiz       | m | thing colourful small_thing stationery
notebook                | cuaderno    | m | thing colourful small_thing stationery
key                     | llave       | f | thing small_thing lost
wallet                  | cartera     | f | thing small_thing lost colourful
umbrella                | paraguas/paraguas | m | thing lost colourful
bag                     | bolsa       | f | thing carried colourful lost
suitcase                | maleta      | f | thing carried colourful opened lost
box                     | caja        | f | carried opened thing colourful
backpack                | mochila     | f | thing carried colourful lost
watch                   | reloj       | m | gift thing small_thing lost
ring                    | anillo      | m | gift small_thing lost
ball                    | pelota      | f | gift thing colourful
toy                     | juguete     | m | gift thing
flower                  | flor        | f | gift colourful plant
photo                   | foto        | f | sendable seen
painting                | cuadro      | m | seen
map                     | mapa        | m | thing seen
ticket                  | boleto      | m | small_thing lost
gift                    | regalo      | m | sendable
knife/knives            | cuchillo    | m | kitchenware
spoon                   | cuchara     | f | kitchenware
plate                   | plato       | m | kitchenware fragile
cup                     | taza        | f | kitchenware fragile colourful
bottle                  | botella     | f | fragile opened
phone                   | teléfono    | m | device lost
computer                | computadora | f | device
camera                  | cámara      | f | device lost gift
lamp                    | lámpara     | f | device light
light                   | luz         | f | light
television              | televisión  | f | light
radio                   | radio       | f | light
bicycle                 | bicicleta   | f | vehicle colourful gift
motorcycle              | motocicleta | f | vehicle colourful
car                     | coche       | m | vehicle colourful driven
truck                   | camión      | m | vehicle colourful driven
bus                     | autobús     | m | transport driven
train                   | tren        | m | transport
plane                   | avión       | m | transport
table                   | mesa        | f | furniture colourful
chair                   | silla       | f | furniture colourful
bed                     | cama        | f | furniture
sofa                    | sofá        | m | furniture colourful
desk                    | escritorio  | m | furniture
mirror                  | espejo      | m | furniture fragile
door                    | puerta      | f | opened surface colourful
window                  | ventana     | f | opened surface fragile
wall                    | pared       | f | surface colourful
floor                   | piso        | m | surface only
axe                     | hacha       | f | tool tonic
hammer                  | martillo    | m | tool
money                   | dinero      | m | mass money
time                    | tiempo      | m | mass leisure
help                    | ayuda       | f | mass aid
bill                    | cuenta      | f | only paid
tree                    | árbol       | m | plant drawn
star                    | estrella    | f | sky drawn
moon                    | luna        | f | only sky
sea                     | mar         | m | only sky
"""

PLACES = """
house                   | casa        | f | place building colourful drawn dwelling
school                  | escuela     | f | place building
park                    | parque      | m | place outside
market                  | mercado     | m | place shop
shop                    | tienda      | f | place shop
bakery                  | panadería   | f | place shop
pharmacy                | farmacia    | f | place shop
library                 | biblioteca  | f | place building
restaurant              | restaurante | m | place building
hospital                | hospital    | m | place building
museum                  | museo       | m | place building
church                  | iglesia     | f | place building
bank                    | banco       | m | place
office                  | oficina     | f | place
university              | universidad | f | place
hotel                   | hotel       | m | place building
cinema                  | cine        | m | place
theatre                 | teatro      | m | place building
station                 | estación    | f | place
airport                 | aeropuerto  | m | place
beach                   | playa       | f | place outside
square                  | plaza       | f | place outside
river                   | río         | m | place outside
lake                    | lago        | m | place outside
forest                  | bosque      | m | place outside
city                    | ciudad      | f | place town
village                 | pueblo      | m | place town
bridge                  | puente      | m | span
street                  | calle       | f | place road
garden                  | jardín      | m | place outside
kitchen                 | cocina      | f | room
bathroom                | baño        | m | room
living room             | sala        | f | room
dining room             | comedor     | m | room
room                    | habitación  | f | room
classroom               | aula        | f | room tonic
"""

BODY = """
head                    | cabeza      | f | ache
back                    | espalda     | f | ache
stomach                 | estómago    | m | ache
throat                  | garganta    | f | ache
arm                     | brazo       | m | ache limb
leg                     | pierna      | f | ache limb
hand                    | mano        | f | washed limb
foot/feet               | pie         | m | limb washed
eye                     | ojo         | m | limb
"""


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun in both languages."""

    english: str
    english_plural: str
    spanish: str
    spanish_plural: str
    gender: Gender
    kinds: frozenset[str]


def english_plural(singular: str) -> str:
    """The regular plural.

    >>> [english_plural(word) for word in ("car", "box", "city", "day", "potato", "photo")]
    ['cars', 'boxes', 'cities', 'days', 'potatoes', 'photos']
    """
    if singular.endswith("y") and singular[-2] not in "aeiou":
        return singular[:-1] + "ies"
    return singular + ("es" if singular.endswith(("s", "x", "ch", "sh", "ato")) else "s")


def spanish_plural(singular: str) -> str:
    """The regular plural; a stressed last syllable loses its accent.

    >>> [spanish_plural(word) for word in ("casa", "pared", "lápiz", "canción", "autobús", "sofá")]
    ['casas', 'paredes', 'lápices', 'canciones', 'autobuses', 'sofás']
    """
    if singular[-1] in "aeiouáéó":
        return singular + "s"
    if singular.endswith("z"):
        return singular[:-1] + "ces"
    plain = str.maketrans("áéíóú", "aeiou")
    return singular[:-2] + singular[-2].translate(plain) + singular[-1] + "es"


def _read(table: str) -> list[Noun]:
    nouns = []
    for english, spanish, gender, kinds in rows(table, 4):
        singular, _, plural = english.partition("/")
        uno, _, varios = spanish.partition("/")
        forms = (singular, plural or english_plural(singular), uno, varios or spanish_plural(uno))
        nouns.append(Noun(*forms, "f" if gender == "f" else "m", frozenset(kinds.split())))
    return nouns


NOUNS = tuple(noun for table in (PEOPLE, ANIMALS, FOOD, WORDS_AND_ARTS, THINGS, PLACES, BODY) for noun in _read(table))
BY_ENGLISH = {noun.english: noun for noun in NOUNS}


def noun(english: str) -> Noun:
    """The noun with this English singular."""
    return BY_ENGLISH[english]


@cache
def of_kinds(kinds: str) -> tuple[Noun, ...]:
    """The nouns of at least one of the kinds, which are separated by spaces."""
    wanted = set(kinds.split())
    return tuple(noun for noun in NOUNS if noun.kinds & wanted)
