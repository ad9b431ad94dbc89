"""The grammar: tables of the sentences of each topic, and `derive_sentence`, which chooses one."""

from typing import Protocol

from little_world import facts, noun_groups
from little_world.adjectives import ADJECTIVES
from little_world.clauses import Action, Shapes
from little_world.grammar_engine import Derivation, Menu, SceneLabels, SentenceLabels
from little_world.noun_groups import CLEAR, THINGS, few, find_nouns, some, these
from little_world.nouns import (
    CUDDLY,
    DEVICES,
    FRUIT,
    GOODS,
    HEALERS,
    PETS,
    SIGHTS,
    SKIN,
    SWIMMERS,
    TOYS,
    TREATS,
    VESSELS,
    WILD,
)
from little_world.phrases import ANY, COUNTED, MANY, MASS, SHOWN, Couples, Determiner, PhraseKind, Things
from little_world.places_times import UNSAID
from little_world.statements import Biopsy, Caption, Existence, Imperative, Opinion, Property
from little_world.verbs import VERBS
from little_world.word_types import Adjective, Fixed, Noun, Verb


class Scene(Protocol):
    def derive(self, p: Derivation) -> SceneLabels: ...


STATED: Shapes = ("plain", "plain", "early", "late", "perfect", "known")
DONE: Shapes = (*STATED, "passive")
WISHED: Shapes = (*STATED, "wish", "my wish")
DONE_OR_WISHED: Shapes = (*DONE, "wish", "my wish")


def _verbs(names: str) -> tuple[Verb, ...]:
    return tuple(VERBS[name] for name in names.split())


def _reasons(names: str) -> tuple[Adjective, ...]:
    return tuple(ADJECTIVES[name] for name in names.split())


def _stays(who: PhraseKind, verbs: str, *where: Menu[Fixed], because: str = "", seen: bool = False) -> Action:
    """The cat sat on a mat (and was seen there when Anna came home)."""
    return Action(
        who=who,
        verbs=_verbs(verbs),
        shapes=(*STATED, *(("reason",) if because else ()), *(("arrival",) if seen else ())),
        theme="subject",
        moody="subject",
        where=where,
        reasons=_reasons(because),
    )


def _acts(who: PhraseKind, verbs: str, what: PhraseKind) -> Action:
    """The fox chased a mouse."""
    return Action(who=who, verbs=_verbs(verbs), what=what, shapes=DONE, theme="subject", moody="subject")


def _does(
    verbs: str, what: PhraseKind, *where: Menu[Fixed], because: str = "", shapes: Shapes = DONE_OR_WISHED
) -> Action:
    """Anna bought a new phone."""
    return Action(
        who=noun_groups.person,
        verbs=_verbs(verbs),
        what=what,
        shapes=(*shapes, "reason") if because else shapes,
        theme="object",
        moody="object",
        where=(UNSAID, *where),
        reasons=_reasons(because),
    )


def _handles(who: PhraseKind, verbs: str, what: PhraseKind, *where: Menu[Fixed], shapes: Shapes = DONE) -> Action:
    """A friendly doctor examined the mole: all opinions are about the doctor."""
    where = (UNSAID, *where)
    return Action(who=who, verbs=_verbs(verbs), what=what, shapes=shapes, theme="object", moody="subject", where=where)


def _gives(to: PhraseKind, what: PhraseKind, *, verbs: str = "give show") -> Action:
    """Anna gave the boy a red ball."""
    verb = _verbs(verbs)
    return Action(who=noun_groups.person, verbs=verb, to=to, what=what, shapes=WISHED, theme="object", moody="object")


def _opinions(nouns: tuple[Noun, ...]) -> tuple[Scene, ...]:
    """Anna loves this lion; Anna loves old lions."""
    return Opinion(what=Things(nouns=nouns, determiners=SHOWN)), Opinion(what=Things(nouns=nouns, determiners=MANY))


def _pictures(nouns: tuple[Noun, ...]) -> tuple[Scene, ...]:
    """A sea lion. An apple and an orange."""
    return *4 * (Caption(what=few(nouns)),), Caption(what=Couples(each=few(nouns)))


def _in_general(nouns: tuple[Noun, ...], determiners: Menu[Determiner]) -> Property:
    """Apple pie is sweet."""
    what = Things(nouns=nouns, determiners=determiners, counts=(0,))
    return Property(what=what, lasting=True, tenses=("is", "thinks"))


SMALL_THINGS = (*TOYS, *CUDDLY, *GOODS)
PLANT_EATERS, FISHERS = find_nouns("Kaninchen Hamster Affe Elefant Ziege"), find_nouns("Katze Bär Seelöwe Pinguin")

SCENES: dict[str, tuple[Scene, ...]] = {
    "animals": (
        *2 * (_stays(some(PETS), "sleep lie", noun_groups.HOME, noun_groups.NATURE, because="tired old", seen=True),),
        *2
        * (_stays(some(PETS), "sit wait", noun_groups.HOME, noun_groups.NATURE, because="hungry thirsty", seen=True),),
        *2 * (_stays(some((*WILD, *SWIMMERS)), "sleep lie", noun_groups.NATURE, because="tired old"),),
        *2 * (_stays(some((*WILD, *SWIMMERS)), "sit wait", noun_groups.NATURE, because="hungry thirsty"),),
        _stays(some(SWIMMERS), "swim", noun_groups.WATER),
        *2 * (_acts(some(noun_groups.ANIMALS), "follow follow watch see look_at", some(noun_groups.ANIMALS)),),
        _acts(some(find_nouns("Katze Hund Fuchs")), "chase", some(find_nouns("Maus Kaninchen Ente"))),
        _acts(some(find_nouns("Löwe Bär Wolf")), "chase", some(find_nouns("Zebra Ziege Kaninchen"))),
        _acts(some(PLANT_EATERS), "devour", noun_groups.snack),
        _acts(some(FISHERS), "devour", noun_groups.fish),
        *2 * (_acts(some(find_nouns("Hund Kaninchen Hamster Fuchs Maulwurf")), "dig", noun_groups.burrow),),
        *4 * (_does("feed stroke wash find see photograph", some(CLEAR), noun_groups.PARKS),),
        _gives(some(PLANT_EATERS), noun_groups.snack, verbs="give"),
        _gives(some(FISHERS), noun_groups.fish, verbs="give"),
        _gives(noun_groups.person, some(CLEAR), verbs="show"),
        *_opinions(CLEAR),
        *2 * (Property(what=these(CLEAR)),),
        Imperative(verbs=_verbs("feed stroke wash photograph"), what=some(CLEAR)),
        *2 * (facts.ANIMAL_CLASSES,),
        facts.HABITATS,
        facts.SIZES,
        *_pictures(CLEAR),
    ),
    "fruit": (
        *2 * (_does("buy", some(FRUIT), noun_groups.MARKETS, because="ripe sweet cheap"),),
        _does("sell", some(FRUIT), noun_groups.MARKETS),
        *3 * (_does("eat wash find", some(FRUIT), noun_groups.ROOMS),),
        _does("pick", some(FRUIT), noun_groups.GARDEN),
        _does("peel", some(find_nouns("Apfel Orange Banane Birne Pfirsich")), noun_groups.ROOMS),
        _does("buy eat wash", Couples(each=few(FRUIT)), shapes=WISHED),
        *2 * (_gives(noun_groups.person, some(FRUIT)),),
        *2 * (_stays(some(FRUIT), "lie", noun_groups.TABLES, seen=True),),
        _stays(some(find_nouns("Apfel Birne Pflaume Kirsche")), "fall", noun_groups.TREES),
        *_opinions(FRUIT),
        Opinion(what=Things(nouns=TREATS, determiners=MASS, counts=(0, 1))),
        *2 * (Property(what=these(FRUIT)),),
        _in_general(TREATS, MASS),
        Imperative(verbs=_verbs("wash buy eat"), what=some(FRUIT)),
        facts.FRUIT_CLASSES,
        facts.SOILS,
        *_pictures(FRUIT),
    ),
    "phones": (
        _does("buy", some(DEVICES), noun_groups.MARKETS, because="cheap fast"),
        _does("sell", some(DEVICES), noun_groups.MARKETS, because="slow old"),
        _does("lose", some(DEVICES), noun_groups.ROOMS, shapes=DONE),
        *2 * (_does("use find clean repair", some(DEVICES), noun_groups.ROOMS),),
        *2 * (_does("switch_on switch_off charge", some(DEVICES), noun_groups.ROOMS),),
        *2 * (_gives(noun_groups.person, some(DEVICES)),),
        _stays(some(DEVICES), "lie", noun_groups.TABLES, seen=True),
        _stays(some(tuple(noun for noun in DEVICES if "Handy" in noun.name)), "ring", noun_groups.ROOMS, seen=True),
        _handles(noun_groups.company, "open", noun_groups.shop, noun_groups.IN_CITIES),
        *_opinions(DEVICES),
        *2 * (Property(what=these(DEVICES)),),
        _in_general(DEVICES, MANY),
        Imperative(verbs=_verbs("switch_on switch_off charge repair"), what=some(DEVICES)),
        facts.PRODUCTS,
        *_pictures(DEVICES),
    ),
    "things": (
        _does("buy", some(THINGS), noun_groups.MARKETS, because="cheap new"),
        _does("sell", some(THINGS), noun_groups.MARKETS, because="old"),
        _does("lose", some(THINGS), shapes=DONE),
        *2 * (_does("find clean repair", some(THINGS), noun_groups.GARDEN),),
        _does("pick_up", some(SMALL_THINGS), noun_groups.ROOMS),
        _does("hug", some(CUDDLY), noun_groups.ROOMS),
        *2 * (_gives(noun_groups.person, some(THINGS)),),
        *2 * (_stays(some(SMALL_THINGS), "lie", noun_groups.TABLES, seen=True),),
        *_opinions(THINGS),
        *2 * (Property(what=these(THINGS)),),
        Imperative(verbs=_verbs("clean repair"), what=some(THINGS)),
        *_pictures(THINGS),
    ),
    "places": (
        *4 * (_does("visit photograph see", noun_groups.sight),),
        *2 * (_stays(noun_groups.person, "travel fly", noun_groups.TO_CITIES),),
        Opinion(what=Things(nouns=SIGHTS, determiners=SHOWN, where=(UNSAID, noun_groups.IN_CITIES))),
        *2 * (Property(what=these(SIGHTS, UNSAID, noun_groups.IN_CITIES)),),
        *2 * (Existence(what=Things(nouns=SIGHTS, determiners=ANY), where=noun_groups.IN_CITIES),),
        facts.HOMES,
        Imperative(verbs=_verbs("visit photograph"), what=noun_groups.sight),
        *2 * (Caption(what=Things(nouns=SIGHTS, determiners=COUNTED, where=(noun_groups.IN_CITIES,))),),
    ),
    "medicine": (
        *6 * (_handles(noun_groups.healer, "examine photograph treat look_at", noun_groups.mark),),
        *2 * (_handles(noun_groups.healer, "remove", noun_groups.removable_mark),),
        *2 * (Biopsy(what=noun_groups.one_mark),),
        Imperative(verbs=_verbs("examine photograph"), what=noun_groups.mark),
        *3 * (Property(what=these(SKIN, noun_groups.BODY), forms=("one", "not", "and")),),
        Opinion(what=Things(nouns=HEALERS, determiners=SHOWN)),
        *4 * (Caption(what=Things(nouns=SKIN, determiners=COUNTED, where=(noun_groups.BODY,))),),
    ),
    "chemistry": (
        *4
        * (
            _handles(
                noun_groups.person, "heat cool weigh", noun_groups.amount, noun_groups.LABORATORY, shapes=DONE_OR_WISHED
            ),
        ),
        *2 * (_handles(some(VESSELS), "contain", noun_groups.amount, shapes=("plain", "early", "late", "known")),),
        *2 * (facts.WEIGHTS,),
        facts.SUBSTANCE_CLASSES,
        *2 * (Property(what=noun_groups.experiment, forms=("one", "not")),),
        Opinion(what=noun_groups.experiment),
        Caption(what=noun_groups.amount),
    ),
}
TOPICS = tuple(SCENES)


def derive_sentence(p: Derivation, *, topics: tuple[str, ...] = TOPICS) -> SentenceLabels:
    """One sentence of the little world."""
    topic = p.choose("topic", topics)
    return SentenceLabels(topic, *p.choose("scene", SCENES[topic]).derive(p))
