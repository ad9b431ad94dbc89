"""Tables of noun phrases and places: nouns with the determiners and places that suit them."""

from little_world.adjectives import AGE, COLOUR, SIZE, STATE
from little_world.german import join_preposition
from little_world.grammar_engine import Menu
from little_world.nouns import (
    BURROWS,
    CUDDLY,
    EXPERIMENTS,
    FEED,
    FISH,
    FRUIT,
    GOODS,
    GRAZERS,
    HEALERS,
    PETS,
    ROLES,
    SELLERS,
    SHOPS,
    SIGHTS,
    SKIN,
    SUBSTANCES,
    SWIMMERS,
    TOYS,
    VEHICLES,
    WILD,
)
from little_world.phrases import (
    COUNTED,
    MASS,
    MEASURED,
    NAMES,
    SHOWN,
    SINGULAR,
    SOME,
    THE,
    THE_ONE,
    THIS,
    A,
    Amount,
    Amounts,
    People,
    Things,
    make_core,
    moles_of,
)
from little_world.places_times import UNSAID, cities, places
from little_world.word_types import Fixed, Noun, parse_tagged

# --- where ----------------------------------------------------------------------------------------------------------

HOME = places("""
    on auf: mat* sofa* bed* chair* floor
    under unter: table* bed* chair*
    next_to neben: sofa* bed*
    in in: garden kitchen basket*
""")
NATURE = places("""
    under unter: tree* bush*
    behind hinter: rock* bush*
    next_to neben: tree* rock*
    on auf: rock*
    on an: beach
    in in: grass zoo
""")
TABLES = places("""
    on auf: table* shelf* floor
    under unter: table* chair*
    in in: basket* bag* box* kitchen
""")
MARKETS = places("""
    at auf: market
    in in: supermarket shop
""")
ROOMS, LABORATORY = places("in in: kitchen garden house office shop"), places("in in: laboratory")
PARKS, GARDEN = places("in in: garden zoo"), places("in in: garden")
WATER, TREES = places("in in: sea river lake"), places("from von: tree*")
BODY = places("on an: arm back leg hand shoulder")
IN_CITIES, TO_CITIES = cities("in", "in"), cities("to", "nach")
WITH_MOLES = Menu(
    Fixed(
        tokens=(*parse_tagged("with/ADP"), *count.tokens, *moles_of(count), *substance.one),
        german=join_preposition("mit", Amount(count, make_core(substance)).german("dative")),
    )
    for count in MEASURED.options
    for substance in SUBSTANCES
)

# --- who and what ---------------------------------------------------------------------------------------------------

ANIMALS = (*PETS, *WILD, *SWIMMERS, *GRAZERS)
THINGS = (*TOYS, *CUDDLY, *GOODS, *VEHICLES)
_BY_NAME = {noun.name: noun for noun in (*ANIMALS, *FRUIT, *SKIN)}
CLEAR = tuple(noun for noun in ANIMALS if noun.name != "Maulwurf")  # without the mole, which would be ambiguous


def find_nouns(names: str) -> tuple[Noun, ...]:
    """Nouns by their German names: a mole is a Maulwurf or a Muttermal, never just a mole."""
    return tuple(_BY_NAME[name] for name in names.split())


def some(nouns: tuple[Noun, ...]) -> Things:
    """The cat, a cat, this cat, two cats, the cats, with up to two adjectives."""
    return Things(nouns=nouns, determiners=SOME)


def few(nouns: tuple[Noun, ...]) -> Things:
    """A cat, two cats."""
    return Things(nouns=nouns, determiners=COUNTED)


def these(nouns: tuple[Noun, ...], *where: Menu[Fixed]) -> Things:
    """The old cat: adjectives of age and colour only, so that a predicate can add its state."""
    return Things(nouns=nouns, determiners=SHOWN, ranks=(AGE, COLOUR), where=where)


person = People(names=NAMES, others=Things(nouns=ROLES, determiners=SINGULAR, counts=(0, 0, 1)))
healer = Things(nouns=HEALERS, determiners=SINGULAR, counts=(0, 0, 1))
company = Things(nouns=SELLERS, determiners=MASS, counts=(0,))
snack = Things(nouns=(*FEED, *find_nouns("Apfel Banane")), determiners=COUNTED, counts=(0, 1), ranks=(SIZE,))
fish = Things(nouns=FISH, determiners=COUNTED, counts=(0, 1))
burrow = Things(nouns=BURROWS, determiners=COUNTED)
shop = Things(nouns=SHOPS, determiners=COUNTED)
sight = Things(nouns=SIGHTS, determiners=SOME, where=(UNSAID, IN_CITIES))
mark, removable_mark, one_mark = (
    Things(nouns=nouns, determiners=determiners, ranks=(SIZE, STATE, AGE, COLOUR), where=(UNSAID, BODY))
    for nouns, determiners in ((SKIN, SOME), (find_nouns("Muttermal Warze Narbe"), SOME), (SKIN, Menu((THE, A, THIS))))
)
experiment = Things(nouns=EXPERIMENTS, determiners=THE_ONE, counts=(0,), where=(WITH_MOLES,))
amount = Amounts()
