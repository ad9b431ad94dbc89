"""The little world's sentences, topic by topic: who does what where, and what can be said of whom.

Only tables, and the grammar's one door `sentence`. Refuses to know how a sentence is put together.
"""

from typing import Any, Protocol

from triform.data.world import kinds, truths
from triform.data.world.adjectives import ADJECTIVES
from triform.data.world.events import Event, Role, Shapes
from triform.data.world.kinds import CLEAR, THINGS, few, named, some, these
from triform.data.world.nouns import (
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
from triform.data.world.phrases import (
    ANY,
    COUNTED,
    MANY,
    MASS,
    MOODY,
    SHOWN,
    THE,
    THIS,
    A,
    Couples,
    Kind,
    Moods,
    Things,
)
from triform.data.world.statements import Biopsy, Caption, Existence, Opinion, Property, Request
from triform.data.world.telling import Menu, Teller, Telling
from triform.data.world.verbs import VERBS
from triform.data.world.where import UNSAID
from triform.data.world.words import Fixed, Noun, Verb


class Scene(Protocol):
    def tell(self, p: Teller, topic: str) -> Telling: ...


TOLD: Shapes = ("plain", "plain", "early", "late", "perfect", "known")
DONE: Shapes = (*TOLD, "passive")
WISHED: Shapes = (*TOLD, "wish", "my wish")
DONE_OR_WISHED: Shapes = (*DONE, "wish", "my wish")


def _verbs(names: str) -> tuple[Verb, ...]:
    return tuple(VERBS[name] for name in names.split())


def _stays(who: Kind, verbs: str, *where: Menu[Fixed], because: str = "", shapes: Shapes = TOLD) -> Event:
    """The cat sat on a mat."""
    reasons = tuple(ADJECTIVES[name] for name in because.split())
    shapes = (*shapes, "reason") if reasons else shapes
    return Event(who=who, verbs=_verbs(verbs), shapes=shapes, theme="subject", where=where, reasons=reasons)


def _acts(who: Kind, verbs: str, what: Kind) -> Event:
    """The fox chased a mouse."""
    return Event(who=who, verbs=_verbs(verbs), what=what, shapes=DONE, theme="subject")


def _does(
    verbs: str,
    what: Kind,
    *where: Menu[Fixed],
    who: Kind = kinds.person,
    because: str = "",
    shapes: Shapes = DONE_OR_WISHED,
    moody: Role = "object",
    moods: Moods = MOODY,
) -> Event:
    """Anna bought a new phone."""
    reasons = tuple(ADJECTIVES[name] for name in because.split())
    return Event(
        who=who,
        verbs=_verbs(verbs),
        what=what,
        shapes=(*shapes, "reason") if reasons else shapes,
        theme="object",
        moody=moody,
        moods=moods,
        where=(UNSAID, *where),
        reasons=reasons,
    )


def _gives(to: Kind, what: Kind, *, verbs: str = "give show") -> Event:
    """Anna gave the child a red ball."""
    return Event(who=kinds.person, verbs=_verbs(verbs), to=to, what=what, shapes=WISHED, theme="object")


def _opinions(nouns: tuple[Noun, ...]) -> tuple[Scene, ...]:
    """Anna loves this lion; Anna loves old lions."""
    return Opinion(what=Things(nouns=nouns, determiners=SHOWN)), Opinion(what=Things(nouns=nouns, determiners=MANY))


def _pictures(nouns: tuple[Noun, ...]) -> tuple[Scene, ...]:
    """A sea lion. An apple and an orange."""
    return Caption(what=few(nouns)), Caption(what=Couples(each=few(nouns)))


def _in_general(nouns: tuple[Noun, ...], determiner: Menu[Any]) -> Property:
    """Apple pie is sweet."""
    return Property(what=Things(nouns=nouns, determiners=determiner, counts=(0,)), tenses=("is", "thinks"))


SCENES: dict[str, tuple[Scene, ...]] = {
    "animals": (
        *2
        * (_stays(some(PETS), "sleep lie", kinds.HOME, kinds.NATURE, because="tired old", shapes=(*TOLD, "arrival")),),
        *2
        * (
            _stays(
                some(PETS), "sit wait", kinds.HOME, kinds.NATURE, because="hungry thirsty", shapes=(*TOLD, "arrival")
            ),
        ),
        *2 * (_stays(some((*WILD, *SWIMMERS)), "sleep lie", kinds.NATURE, because="tired old"),),
        *2 * (_stays(some((*WILD, *SWIMMERS)), "sit wait", kinds.NATURE, because="hungry thirsty"),),
        _stays(some(SWIMMERS), "swim", kinds.WATER),
        *4 * (_acts(some(kinds.ANIMALS), "chase follow watch see look_at", some(kinds.ANIMALS)),),
        _acts(some(named("Kaninchen Hamster Affe Elefant Ziege")), "devour", kinds.snack),
        _acts(some(named("Katze Bär Seelöwe Otter Pinguin")), "devour", kinds.fish),
        *2 * (_acts(some(named("Hund Kaninchen Hamster Fuchs Maulwurf")), "dig", kinds.burrow),),
        *4 * (_does("feed stroke wash find see photograph", some(CLEAR), kinds.PARKS),),
        _gives(some(named("Kaninchen Hamster Affe Elefant Ziege")), kinds.snack, verbs="give"),
        _gives(some(named("Katze Bär Seelöwe Otter Pinguin")), kinds.fish, verbs="give"),
        _gives(kinds.person, some(CLEAR), verbs="show"),
        *_opinions(CLEAR),
        *2 * (Property(what=these(CLEAR)),),
        Request(verbs=_verbs("feed stroke wash photograph"), what=some(CLEAR)),
        truths.ANIMAL_CLASSES,
        truths.HABITATS,
        truths.SIZES,
        *_pictures(CLEAR),
    ),
    "fruit": (
        *3 * (_does("buy sell", some(FRUIT), kinds.MARKETS, because="ripe sweet cheap"),),
        *3 * (_does("eat wash find pick", some(FRUIT), kinds.ROOMS),),
        _does("peel", some(named("Apfel Orange Banane Birne Pfirsich")), kinds.ROOMS),
        _does("buy eat wash", Couples(each=few(FRUIT)), shapes=WISHED),
        *2 * (_gives(kinds.person, some(FRUIT)),),
        *2 * (_stays(some(FRUIT), "lie", kinds.TABLES, shapes=(*TOLD, "arrival")),),
        _stays(some(named("Apfel Birne Pflaume Kirsche")), "fall", kinds.TREES),
        *_opinions(FRUIT),
        Opinion(what=Things(nouns=TREATS, determiners=MASS, counts=(0, 1))),
        *2 * (Property(what=these(FRUIT)),),
        _in_general(TREATS, MASS),
        Request(verbs=_verbs("wash buy eat"), what=some(FRUIT)),
        truths.FRUIT_CLASSES,
        truths.SOILS,
        *_pictures(FRUIT),
    ),
    "phones": (
        *2 * (_does("buy sell", some(DEVICES), kinds.MARKETS, because="cheap fast"),),
        *2 * (_does("use lose find clean repair", some(DEVICES), kinds.ROOMS),),
        *2 * (_does("switch_on switch_off charge", some(DEVICES), kinds.ROOMS),),
        *2 * (_gives(kinds.person, some(DEVICES)),),
        _stays(some(DEVICES), "lie", kinds.TABLES, shapes=(*TOLD, "arrival")),
        _stays(some(tuple(n for n in DEVICES if "Handy" in n.name)), "ring", kinds.ROOMS, shapes=(*TOLD, "arrival")),
        _does("open", kinds.shop, kinds.IN_CITIES, who=kinds.company, shapes=DONE),
        *_opinions(DEVICES),
        *2 * (Property(what=these(DEVICES)),),
        _in_general(DEVICES, MANY),
        Request(verbs=_verbs("switch_on switch_off charge repair"), what=some(DEVICES)),
        truths.PRODUCTS,
        *_pictures(DEVICES),
    ),
    "things": (
        *2 * (_does("buy sell", some(THINGS), kinds.MARKETS, because="cheap"),),
        *2 * (_does("lose find clean repair", some(THINGS), kinds.ROOMS),),
        _does("pick_up", some((*TOYS, *CUDDLY, *GOODS)), kinds.ROOMS),
        _does("hug", some(CUDDLY), kinds.ROOMS),
        *2 * (_gives(kinds.person, some(THINGS)),),
        *2 * (_stays(some((*TOYS, *CUDDLY, *GOODS)), "lie", kinds.TABLES, shapes=(*TOLD, "arrival")),),
        *_opinions(THINGS),
        *2 * (Property(what=these(THINGS)),),
        Request(verbs=_verbs("clean repair"), what=some(THINGS)),
        *_pictures(THINGS),
    ),
    "places": (
        *4 * (_does("visit photograph see", kinds.sight),),
        *2 * (_stays(kinds.person, "travel fly", kinds.TO_CITIES),),
        Opinion(what=Things(nouns=SIGHTS, determiners=SHOWN, where=(UNSAID, kinds.IN_CITIES))),
        *2 * (Property(what=these(SIGHTS, UNSAID, kinds.IN_CITIES)),),
        *2 * (Existence(what=Things(nouns=SIGHTS, determiners=ANY), where=kinds.IN_CITIES),),
        truths.HOMES,
        Request(verbs=_verbs("visit photograph"), what=kinds.sight),
        Caption(what=Things(nouns=SIGHTS, determiners=COUNTED, where=(kinds.IN_CITIES,))),
    ),
    "medicine": (
        *6 * (_does("examine photograph treat look_at", kinds.mark, who=kinds.healer, shapes=DONE, moody="subject"),),
        *2 * (_does("remove", kinds.removable_mark, who=kinds.healer, shapes=DONE, moody="subject"),),
        *2 * (Biopsy(what=Things(nouns=SKIN, determiners=Menu((THE, A, THIS)), where=(UNSAID, kinds.BODY))),),
        Request(verbs=_verbs("examine photograph"), what=kinds.mark),
        *3 * (Property(what=these(SKIN, kinds.BODY), forms=("one", "not", "and")),),
        Opinion(what=Things(nouns=HEALERS, determiners=SHOWN)),
        Caption(what=Things(nouns=SKIN, determiners=COUNTED, where=(kinds.BODY,))),
    ),
    "chemistry": (
        *4 * (_does("heat cool weigh", kinds.amount, kinds.LABORATORY, moody="subject"),),
        *2 * (_does("contain", kinds.amount, who=some(VESSELS), shapes=TOLD, moody="subject"),),
        *2 * (truths.WEIGHTS,),
        truths.SUBSTANCE_CLASSES,
        *2 * (Property(what=kinds.experiment, forms=("one", "not")),),
        Opinion(what=kinds.experiment),
        Caption(what=kinds.amount),
    ),
}
TOPICS = tuple(SCENES)


def sentence(p: Teller, *, topics: tuple[str, ...] = TOPICS) -> Telling:
    """One sentence of the little world."""
    topic = p.choose("topic", topics)
    return p.choose("scene", SCENES[topic]).tell(p, topic)
