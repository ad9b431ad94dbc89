"""Places and times in both languages."""

from little_world.german import decline, join_preposition
from little_world.grammar_engine import Menu
from little_world.nouns import CITIES, SPOTS
from little_world.word_types import Fixed, Noun, link_adjectives, parse_tagged, spell

UNSAID = Menu((Fixed(tokens=(), german=""),))  # the menu of a place that is not mentioned


def places(table: str) -> Menu[Fixed]:
    """Lines of `english German: spots`; each spot is used with `the`, and with `a`, too, if it has a star."""
    found = []
    for line in table.strip().splitlines():
        prepositions, _, spots = line.partition(":")
        english, german = prepositions.split()
        for spot in spots.split():
            noun = SPOTS[spot.rstrip("*")]
            found.append(_place(english, "the", noun, join_preposition(german, decline("der", (), noun, "dative"))))
            if spot.endswith("*"):
                found.append(_place(english, "a", noun, join_preposition(german, decline("ein", (), noun, "dative"))))
    return Menu(found)


def _place(preposition: str, determiner: str, noun: Noun, german: str) -> Fixed:
    return Fixed(tokens=(*spell(preposition, "ADP"), *spell(determiner, "DET"), *noun.one), german=german)


def cities(english: str, german: str) -> Menu[Fixed]:
    """In Rome, to Rome."""
    return Menu(
        Fixed(tokens=(*spell(english, "ADP"), *spell(city, "PROPN", "B-LOC")), german=f"{german} {there}")
        for city, there in CITIES.items()
    )


TIMES = Menu(
    Fixed(tokens=parse_tagged(english), german=german, links=link_adjectives(parse_tagged(english)))
    for english, german in (
        ("yesterday/ADV", "gestern"),
        ("today/ADV", "heute"),
        ("last/ADJ week/NOUN", "letzte Woche"),
        ("on/ADP Monday/PROPN", "am Montag"),
        ("on/ADP Sunday/PROPN", "am Sonntag"),
        ("in/ADP the/DET evening/NOUN", "am Abend"),
    )
)
