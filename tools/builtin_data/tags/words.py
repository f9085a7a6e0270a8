"""Words and their tags; many are in several lists, since only the sentence decides their tag.

`fish` is a noun and a verb, `light` a noun, a verb and an adjective, `can` an auxiliary and a noun, `fast` an adjective
and an adverb, `May` a name and a month and `may` an auxiliary.
"""

from __future__ import annotations

from builtin_data.table import rows

NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Frank", "Grace", "Harry", "Mark", "May", "Rose", "Will")
TOWNS = ("London", "Paris", "Madrid", "Oslo", "Rome", "Lima", "Cairo", "Bath", "Reading", "Nice")
MONTHS = ("March", "May", "August", "June", "October")
PEOPLE = ("man", "woman", "girl", "boy", "teacher", "doctor", "farmer", "cook", "painter", "child", "student", "guide")
ACTS = ("walk", "run", "swim", "rest", "ride", "dance", "talk", "drink")
EVENTS = ("dance", "walk", "play", "visit", "swim", "talk", "match", "show")

# base, third person, past, -ing | objects | whether people can be objects: me, him
TRANSITIVE_TABLE = """
watch watches watched watching       | play duck train boat match show bird | people
paint paints painted painting        | window table boat chair box house
plant plants planted planting        | tree rose apple
book books booked booking            | room table boat guide
open opens opened opening            | window box can letter book bottle
close closes closed closing          | window box book door
clean cleans cleaned cleaning        | window table boat saw chair watch
light lights lit lighting            | fire lamp match
see sees saw seeing                  | boat duck play picture light bird saw | people
like likes liked liking              | book play picture drink walk song plan | people
find finds found finding             | key book watch letter saw hammer can well | people
carry carries carried carrying       | box chair table saw book plant
cook cooks cooked cooking            | fish duck egg meal
water waters watered watering        | plant rose garden tree
back backs backed backing            | plan idea
plan plans planned planning          | visit walk dance trip garden
call calls called calling            | doctor dog guide cook | people
answer answers answered answering    | letter question call
visit visits visited visiting        | village school city park                | people
drink drinks drank drinking          | water milk tea
read reads read reading              | book letter story play
ride rides rode riding               | horse train
"""
TRANSITIVE = tuple(
    (tuple(forms.split()), tuple(objects.split()), bool(people)) for forms, objects, people in rows(TRANSITIVE_TABLE, 3)
)
IDEAS = frozenset({"plan", "idea", "trip", "question", "call", "song", "story", "meal", "play", "match", "show"})
UNCOUNTED = frozenset({"water", "milk", "tea", "fish"})

INTRANSITIVE_TABLE = """
walk walks walked walking
run runs ran running
swim swims swam swimming
fish fishes fished fishing
dance dances danced dancing
play plays played playing
rest rests rested resting
work works worked working
talk talks talked talking
smile smiles smiled smiling
sleep sleeps slept sleeping
cook cooks cooked cooking
drive drives drove driving
paint paints painted painting
"""
INTRANSITIVE = tuple(tuple(line.split()) for (line,) in rows(INTRANSITIVE_TABLE, 1))
THINKING = (
    ("say", "says", "said"), ("think", "thinks", "thought"), ("know", "knows", "knew"), ("hope", "hopes", "hoped"),
    ("believe", "believes", "believed"),
)  # fmt: skip
WISHING = (
    ("want", "wants", "wanted"),
    ("like", "likes", "liked"),
    ("plan", "plans", "planned"),
    ("hope", "hopes", "hoped"),
)
MOVING = (("walk", "walks", "walked"), ("run", "runs", "ran"), ("go", "goes", "went"), ("drive", "drives", "drove"))

OF_PEOPLE = ("old", "young", "happy", "kind", "quiet", "fast", "tall")
OF_ACTS = ("long", "short", "fast", "quiet", "last", "early")
OF_IDEAS = ("new", "last", "old", "long", "good")
BESIDE_THINGS = ("old", "small", "red", "green", "light", "clean", "new", "last")
BESIDE_PLACES = ("old", "small", "quiet", "clean", "green", "open")
FEELING = ("happy", "kind", "well", "right", "late", "early", "fast", "quiet", "old", "young", "fine", "back")
THING_STATES = ("light", "clean", "old", "dry", "cold", "hard", "small", "red", "new", "fine")
IMAGES = ("a/DET fish/NOUN", "a/DET duck/NOUN", "a/DET child/NOUN", "an/DET old/ADJ man/NOUN", "a/DET light/NOUN")

MANNER = ("fast", "hard", "well", "early", "late", "slowly", "quietly", "together", "alone", "there", "here", "back")
ACT_MANNER = ("early", "late", "slowly", "quietly", "there", "here", "alone")
DEGREE = ("very", "so", "too", "quite", "rather")
FREQUENCY = ("often", "always", "never", "sometimes", "still", "also")

POSSESSIVES = ("my", "your", "his", "her", "our", "their")
SUBJECTS = ("I", "you", "he", "she", "we", "they")
OBJECTS = ("me", "you", "him", "her", "us", "them", "that")
NUMBERS = ("two", "three", "four", "five", "six", "ten", "twenty", "3", "12")
ARTICLES = ("the", "the", "the", "a", "a", "this", "that")
PLURAL_ARTICLES = ("the", "the", "these", "those", "some", "all")
MODALS = ("can", "will", "must", "may", "should", "could", "might", "would")

# preposition | places; the first table is for positions, the second for paths
BEING_TABLE = """
in      | garden kitchen park city village house school back
near    | river bridge house school park well
by      | river window road well
behind  | house school bridge park
"""
MOVING_TABLE = """
across  | river park road bridge
over    | bridge road
through | park village city garden
past    | school house bridge well
around  | park garden village house
"""
BEING = tuple((preposition, tuple(places.split())) for preposition, places in rows(BEING_TABLE, 2))
ANYWHERE = BEING + tuple((preposition, tuple(places.split())) for preposition, places in rows(MOVING_TABLE, 2))
MOTIONS = frozenset({"walk", "run", "drive", "ride"})  # verbs that take a path
GOALS = ("park", "river", "school", "village", "bridge", "garden", "city", "well", "back", "house")
