"""Facts of the little world: what things are, where they live, how big they are.

Tables by German names (a mole is a Maulwurf or a Muttermal, never just a mole), and one `Fact` for each table.
"""

from collections import defaultdict
from collections.abc import Iterator

from little_world.adjectives import ORIGIN
from little_world.german import decline
from little_world.grammar_engine import Menu
from little_world.noun_groups import ANIMALS, IN_CITIES, person
from little_world.nouns import FRUIT, MOLAR_MASSES, SELLERS, SUBSTANCES
from little_world.phrases import ANY, GENERIC, MANY, MASS, ONE, THREE, TWO, Amounts, Things
from little_world.statements import Fact
from little_world.word_types import Fixed, Noun, parse_tagged


def _read_rows(table: str) -> Iterator[tuple[str, str, list[str]]]:
    """Lines of `english = german: nouns it is true of`."""
    for line in table.strip().splitlines():
        english, _, rest = line.strip().partition(" = ")
        german, _, names = rest.partition(": ")
        yield english, german, names.split()


def _read_facts(table: str) -> dict[str, Menu[Fixed]]:
    found = defaultdict(list)
    for english, german, names in _read_rows(table):
        for name in names:
            found[name].append(Fixed(tokens=parse_tagged(english), german=german))
    return {name: Menu(truths) for name, truths in found.items()}


def _select(nouns: tuple[Noun, ...], truths: dict[str, Menu[Fixed]]) -> tuple[Noun, ...]:
    return tuple(noun for noun in nouns if noun.name in truths)


# --- what things are ------------------------------------------------------------------------------------------------

_ONE_IS = _read_facts("""
    a/DET mammal/NOUN = ein Säugetier: Katze Hund Kaninchen Hamster Löwe Elefant Bär Affe Fuchs Wolf Igel
    a/DET mammal/NOUN = ein Säugetier: Maulwurf Seelöwe Maus Zebra Ziege
    a/DET bird/NOUN = ein Vogel: Pinguin Ente
    a/DET predator/NOUN = ein Raubtier: Löwe Wolf Fuchs
    a/DET fruit/NOUN = eine Frucht: Apfel Orange Banane Zitrone Birne Pfirsich Pflaume Kirsche Erdbeere
    a/DET gas/NOUN = ein Gas: Sauerstoff Wasserstoff Stickstoff Helium Methan Kohlendioxid
    a/DET liquid/NOUN = eine Flüssigkeit: Wasser
""")
_MANY_ARE = _read_facts("""
    mammals/NOUN = Säugetiere: Katze Hund Kaninchen Hamster Löwe Elefant Bär Affe Fuchs Wolf Igel
    mammals/NOUN = Säugetiere: Maulwurf Seelöwe Maus Zebra Ziege
    birds/NOUN = Vögel: Pinguin Ente
    predators/NOUN = Raubtiere: Löwe Wolf Fuchs
    fruits/NOUN = Früchte: Apfel Orange Banane Zitrone Birne Pfirsich Pflaume Kirsche Erdbeere
""")


def _is_a(what: Things) -> Fact:
    return Fact(
        what=what,
        verbs={False: (parse_tagged("is/AUX"), "ist"), True: (parse_tagged("are/AUX"), "sind")},
        truths=lambda subject: (_MANY_ARE if subject.plural else _ONE_IS)[subject.core.noun.name],
    )


ANIMAL_CLASSES = _is_a(
    Things(nouns=_select(ANIMALS, _ONE_IS), determiners=GENERIC, counts=(0, 0, 1), ranks=(ORIGIN,)),
)
FRUIT_CLASSES = _is_a(Things(nouns=FRUIT, determiners=GENERIC, counts=(0,)))
SUBSTANCE_CLASSES = _is_a(Things(nouns=SUBSTANCES, determiners=MASS, counts=(0,)))

# --- where they live and grow ---------------------------------------------------------------------------------------

_HABITATS = _read_facts("""
    in/ADP the/DET sea/NOUN = im Meer: Seelöwe
    in/ADP the/DET forest/NOUN = im Wald: Fuchs Wolf Bär Affe Igel
    in/ADP the/DET garden/NOUN = im Garten: Maulwurf Igel
    under/ADP the/DET ground/NOUN = unter der Erde: Maulwurf
    in/ADP Africa/PROPN/B-LOC = in Afrika: Löwe Elefant Zebra Affe
    in/ADP Asia/PROPN/B-LOC = in Asien: Elefant Affe
""")
_SOILS = _read_facts("on/ADP trees/NOUN = auf Bäumen: Apfel Orange Zitrone Birne Pfirsich Pflaume Kirsche")
_LIVE = {False: (parse_tagged("lives/VERB"), "lebt"), True: (parse_tagged("live/VERB"), "leben")}

HABITATS = Fact(
    what=Things(nouns=_select(ANIMALS, _HABITATS), determiners=MANY, counts=(0,)),
    verbs=_LIVE,
    truths=lambda subject: _HABITATS[subject.core.noun.name],
)
SOILS = Fact(
    what=Things(nouns=_select(FRUIT, _SOILS), determiners=MANY, counts=(0,)),
    verbs={True: (parse_tagged("grow/VERB"), "wachsen")},
    truths=lambda subject: _SOILS[subject.core.noun.name],
)
HOMES = Fact(
    combining="live",
    what=person,
    verbs=_LIVE,
    truths=lambda subject: IN_CITIES,
)

# --- how big and heavy they are, and who sells what -----------------------------------------------------------------

_SIZES = [  # compared only if two or more steps apart
    "Maus Hamster Maulwurf",
    "Kaninchen Igel Ente",
    "Katze Fuchs Pinguin",
    "Wolf Ziege",
    "Löwe Bär Seelöwe Zebra",
    "Elefant",
]
_SIZE_OF = {name: size for size, names in enumerate(_SIZES) for name in names.split()}
_SIZED = tuple(noun for noun in ANIMALS if noun.name in _SIZE_OF)


def _comparisons(noun: Noun) -> Iterator[Fixed]:
    for other in _SIZED:
        step = _SIZE_OF[other.name] - _SIZE_OF[noun.name]
        if abs(step) > 1:
            english, german = ("smaller", "kleiner") if step > 0 else ("bigger", "größer")
            tokens = (*parse_tagged(f"{english}/ADJ than/ADP a/DET"), *other.one)
            yield Fixed(tokens=tokens, german=f"{german} als {decline('ein', (), other, 'nominative')}")


_COMPARISONS = {noun.name: Menu(_comparisons(noun)) for noun in _SIZED}
_WEIGHTS = {
    (noun.name, count): Menu((Fixed(tokens=parse_tagged(f"{n * mass}/NUM grams/NOUN"), german=f"{n * mass} Gramm"),))
    for noun, mass in MOLAR_MASSES.items()
    for n, count in enumerate((ONE, TWO, THREE), start=1)
}
_PRODUCTS = _read_facts("""
    phones/NOUN = Handys: Apple Samsung Nokia Sony
    tablets/NOUN = Tablets: Apple Samsung Nokia
    computers/NOUN = Computer: Apple Samsung
    cameras/NOUN = Kameras: Sony
""")

SIZES = Fact(
    what=Things(nouns=_SIZED, determiners=ANY, counts=(0,)),
    verbs={False: (parse_tagged("is/AUX"), "ist")},
    truths=lambda subject: _COMPARISONS[subject.core.noun.name],
)
WEIGHTS = Fact(
    combining="weigh",
    what=Amounts(),
    verbs={False: (parse_tagged("weighs/VERB"), "wiegt"), True: (parse_tagged("weigh/VERB"), "wiegen")},
    truths=lambda amount: _WEIGHTS[amount.core.noun.name, amount.determiner],
)
PRODUCTS = Fact(
    what=Things(nouns=SELLERS, determiners=MASS, counts=(0,)),
    verbs={False: (parse_tagged("sells/VERB"), "verkauft")},
    truths=lambda subject: _PRODUCTS[subject.core.noun.name],
)
