"""German: the tables of articles and endings, and the positions of the verb.

A noun phrase is article + stem·ending + noun; the ending depends on what the article already shows:
weak after der/dieser, mixed after ein, strong after a number or nothing.
"""

from functools import cache
from typing import Literal, TypeAlias

from little_world.word_types import Adjective, Noun, Verb

Case: TypeAlias = Literal["nominative", "accusative", "dative", "genitive"]
Article: TypeAlias = Literal["der", "dieser", "ein", "zwei", "drei", ""]

#                    masculine feminine neuter plural
_ARTICLES: dict[Article, dict[Case, str]] = {
    "der": {
        "nominative": "der die das die",
        "accusative": "den die das die",
        "dative": "dem der dem den",
        "genitive": "des der des der",
    },
    "dieser": {
        "nominative": "dieser diese dieses diese",
        "accusative": "diesen diese dieses diese",
        "dative": "diesem dieser diesem diesen",
        "genitive": "dieses dieser dieses dieser",
    },
    "ein": {
        "nominative": "ein eine ein -",
        "accusative": "einen eine ein -",
        "dative": "einem einer einem -",
        "genitive": "eines einer eines -",
    },
}
_WEAK: dict[Case, str] = {
    "nominative": "e e e en",
    "accusative": "en e e en",
    "dative": "en en en en",
    "genitive": "en en en en",
}
_MIXED: dict[Case, str] = {
    "nominative": "er e es en",
    "accusative": "en e es en",
    "dative": "en en en en",
    "genitive": "en en en en",
}
_STRONG: dict[Case, str] = {
    "nominative": "er e es e",
    "accusative": "en e es e",
    "dative": "em er em en",
    "genitive": "en er en er",
}
_ENDINGS = {"der": _WEAK, "dieser": _WEAK, "ein": _MIXED, "zwei": _STRONG, "drei": _STRONG, "": _STRONG}


@cache
def decline(
    article: Article, adjectives: tuple[Adjective, ...], noun: Noun, case: Case, *, plural: bool = False
) -> str:
    """The noun phrase in a case: `einen reifen Apfel`."""
    column = 3 if plural else "mfn".index(noun.gender)
    shown = _ARTICLES[article][case].split()[column] if article in _ARTICLES else article
    ending = _ENDINGS[article][case].split()[column]
    return " ".join(filter(None, (shown, *(a.stem + ending for a in adjectives), noun_form(noun, case, plural=plural))))


def noun_form(noun: Noun, case: Case, *, plural: bool) -> str:
    """Dative plurals end in -n, unless they end in -n or -s already; masculine and neuter genitives in -s."""
    if plural:
        return noun.plural + ("n" if case == "dative" and noun.plural[-1] not in "ns" else "")
    if case == "nominative" or noun.gender == "f":
        return noun.german
    if case == "genitive" and noun.oblique == noun.german:
        return noun.german + "s"
    return noun.oblique


def join_preposition(preposition: str, phrase: str) -> str:
    """`in dem Garten` becomes `im Garten`."""
    merged = {"in dem": "im", "an dem": "am", "von dem": "vom"}
    article, _, rest = phrase.partition(" ")
    short = merged.get(f"{preposition} {article}")
    return f"{short} {rest}" if short else f"{preposition} {phrase}"


def past_form(verb: Verb, *, plural: bool) -> str:
    """schlief, schliefen; kaufte, kauften"""
    if not plural:
        return verb.german_past
    return verb.german_past + ("n" if verb.german_past.endswith("e") else "en")


def verb_second(front: str, finite: str, *rest: str) -> str:
    """A main clause: whatever stands in front, the finite verb is second; `rest` ends with the verb's other part."""
    return " ".join(filter(None, (front, finite, *rest)))


def verb_last(conjunction: str, *parts: str) -> str:
    """A subordinate clause: the finite verb, one word with its prefix, is the last of the parts."""
    return ", " + " ".join(filter(None, (conjunction, *parts)))


def finish_sentence(text: str) -> str:
    """A sentence begins with a capital letter and ends with a full stop."""
    return text[0].upper() + text[1:] + "."
