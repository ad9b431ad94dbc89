"""The nouns, names and places, each with its gender, its forms and the adjectives that can be true of it."""

from little_world.adjectives import ADJECTIVES
from little_world.word_types import Noun, Token, Tokens


def _noun(entry: str, shared: str) -> Noun:
    """`english plural gender German Plural[*] [own adjectives]`; * = der Löwe, den Löwen: the plural's form."""
    english, plural, gender, german, german_plural, *own = entry.split()
    stars = german_plural.endswith("*")
    many = german_plural.rstrip("*")
    return Noun(
        name=german,
        one=_compound(english),
        many=_compound(plural),
        gender=gender,  # type: ignore[arg-type]  # the tests hold the tables to m, f and n
        german=german,
        oblique=many if stars else german,
        plural=many,
        adjectives=tuple(ADJECTIVES[name] for name in [*shared.split(), *own]),
    )


def _compound(phrase: str) -> Tokens:
    """The tokens of a noun; the company in `Apple phone` is an entity, `cuddly` in `cuddly toy` an adjective."""
    kinds = {"cuddly": ("ADJ", "O")} | dict.fromkeys(COMPANIES, ("PROPN", "B-ORG"))
    return tuple(Token(word, *kinds.get(word, ("NOUN", "O"))) for word in phrase.split("_"))


def _nouns(table: str, *, shared: str = "") -> tuple[Noun, ...]:
    return tuple(_noun(line, shared) for line in table.strip().splitlines())


COMPANIES = ("Apple", "Samsung", "Nokia", "Sony")
_ALL = "big large small little wonderful beautiful terrible ugly"  # what can be said of everything that can be counted

_BEASTS = f"{_ALL} fat hungry thirsty tired old young friendly clever unfriendly"
PETS = _nouns(
    """
    cat cats f Katze Katzen ginger
    dog dogs m Hund Hunde
    rabbit rabbits n Kaninchen Kaninchen
    hamster hamsters m Hamster Hamster
    """,
    shared=f"{_BEASTS} black white brown",
)
WILD = _nouns(
    """
    lion lions m Löwe Löwen* African Asian
    elephant elephants m Elefant Elefanten* African Asian
    bear bears m Bär Bären*
    monkey monkeys m Affe Affen*
    fox foxes m Fuchs Füchse
    wolf wolves m Wolf Wölfe
    hedgehog hedgehogs m Igel Igel European
    mole moles m Maulwurf Maulwürfe European
    """,
    shared=_BEASTS,
)
SWIMMERS = _nouns(
    """
    sea_lion sea_lions m Seelöwe Seelöwen*
    penguin penguins m Pinguin Pinguine
    duck ducks f Ente Enten
    """,
    shared=_BEASTS,
)
GRAZERS = _nouns(
    """
    mouse mice f Maus Mäuse
    zebra zebras n Zebra Zebras
    goat goats f Ziege Ziegen
    """,
    shared=_BEASTS,
)
FEED = _nouns(
    """
    carrot carrots f Karotte Karotten
    nut nuts f Nuss Nüsse
    """,
    shared="big large small little",
)
FISH = _nouns("fish fish m Fisch Fische", shared="big large small little")
BURROWS = _nouns(
    """
    tunnel tunnels m Tunnel Tunnel
    hole holes n Loch Löcher
    """,
    shared="big large small little",
)

_RIPENING = f"{_ALL} ripe rotten sweet cheap expensive delicious"
FRUIT = _nouns(
    """
    apple apples m Apfel Äpfel sour red green
    orange oranges f Orange Orangen sour
    banana bananas f Banane Bananen yellow
    lemon lemons f Zitrone Zitronen sour yellow
    pear pears f Birne Birnen green yellow
    peach peaches m Pfirsich Pfirsiche
    plum plums f Pflaume Pflaumen sour
    cherry cherries f Kirsche Kirschen sour red
    strawberry strawberries f Erdbeere Erdbeeren red
    """,
    shared=_RIPENING,
)
TREATS = _nouns(
    """
    apple_pie - m Apfelkuchen -
    apple_juice - m Apfelsaft -
    orange_juice - m Orangensaft -
    cherry_pie - m Kirschkuchen -
    lemon_ice_cream - n Zitroneneis -
    """,
    shared="sweet cheap expensive delicious wonderful terrible",
)

_USED = f"{_ALL} cheap expensive old new broken"
DEVICES = _nouns(
    """
    phone phones n Handy Handys
    tablet tablets n Tablet Tablets
    computer computers m Computer Computer
    laptop laptops m Laptop Laptops
    camera cameras f Kamera Kameras
    Apple_phone Apple_phones n Apple-Handy Apple-Handys
    Apple_tablet Apple_tablets n Apple-Tablet Apple-Tablets
    Apple_computer Apple_computers m Apple-Computer Apple-Computer
    Apple_laptop Apple_laptops m Apple-Laptop Apple-Laptops
    Samsung_phone Samsung_phones n Samsung-Handy Samsung-Handys
    Samsung_tablet Samsung_tablets n Samsung-Tablet Samsung-Tablets
    Nokia_phone Nokia_phones n Nokia-Handy Nokia-Handys
    Nokia_tablet Nokia_tablets n Nokia-Tablet Nokia-Tablets
    Sony_phone Sony_phones n Sony-Handy Sony-Handys
    Sony_camera Sony_cameras f Sony-Kamera Sony-Kameras
    """,
    shared=f"{_USED} fast slow useful useless black white",
)
SHOPS = _nouns("shop shops m Laden Läden", shared=f"{_ALL} new")

_NICE = f"{_USED} red blue white"
TOYS = _nouns(
    """
    ball balls m Ball Bälle
    doll dolls f Puppe Puppen
    kite kites m Drachen Drachen
    """,
    shared=_NICE,
)
CUDDLY = _nouns(
    """
    lion_cuddly_toy lion_cuddly_toys n Löwen-Kuscheltier Löwen-Kuscheltiere
    sea_lion_cuddly_toy sea_lion_cuddly_toys n Seelöwen-Kuscheltier Seelöwen-Kuscheltiere
    elephant_cuddly_toy elephant_cuddly_toys n Elefanten-Kuscheltier Elefanten-Kuscheltiere
    mouse_cuddly_toy mouse_cuddly_toys n Mäuse-Kuscheltier Mäuse-Kuscheltiere
    """,
    shared=f"{_NICE} soft",
)
GOODS = _nouns(
    """
    lamp lamps f Lampe Lampen
    book books n Buch Bücher
    """,
    shared=_NICE,
)
VEHICLES = _nouns(
    """
    car cars n Auto Autos
    bicycle bicycles n Fahrrad Fahrräder
    """,
    shared=_NICE,
)

SIGHTS = _nouns(
    """
    museum museums n Museum Museen
    church churches f Kirche Kirchen
    bridge bridges f Brücke Brücken
    tower towers m Turm Türme
    market markets m Markt Märkte
    park parks m Park Parks
    castle castles n Schloss Schlösser
    station stations m Bahnhof Bahnhöfe
    """,
    shared=f"{_ALL} quiet famous old new exciting boring",
)

SKIN = _nouns(
    """
    mole moles n Muttermal Muttermale
    wart warts f Warze Warzen
    scar scars f Narbe Narben
    rash rashes m Ausschlag Ausschläge
    """,
    shared="big large small little terrible round old new dark red brown ugly",
)

SUBSTANCES = _nouns(
    """
    water - n Wasser -
    oxygen - m Sauerstoff -
    hydrogen - m Wasserstoff -
    nitrogen - m Stickstoff -
    helium - n Helium -
    methane - n Methan -
    carbon_dioxide - n Kohlendioxid -
    """,
    shared="pure clean warm",
)
MOLAR_MASSES = dict(zip(SUBSTANCES, (18, 32, 2, 28, 4, 16, 44), strict=True))  # grams per mole
VESSELS = _nouns(
    """
    flask flasks m Kolben Kolben
    bottle bottles f Flasche Flaschen
    tank tanks m Tank Tanks
    """,
    shared=f"{_ALL} old new",
)
EXPERIMENTS = _nouns("experiment - n Experiment -", shared="wonderful exciting useful terrible boring useless")

SELLERS = _nouns("\n".join(f"{name} - n {name} -" for name in COMPANIES))

# --- who and where --------------------------------------------------------------------------------------------------

_FOLK = "young tired friendly clever wonderful unfriendly terrible"
ROLES = _nouns(
    """
    girl girls n Mädchen Mädchen
    boy boys m Junge Jungen*
    student students m Student Studenten*
    teacher teachers m Lehrer Lehrer
    """,
    shared=_FOLK,
)
HEALERS = _nouns(
    """
    doctor doctors m Arzt Ärzte
    nurse nurses f Krankenschwester Krankenschwestern
    surgeon surgeons m Chirurg Chirurgen*
    """,
    shared=_FOLK,
)

PEOPLE = (
    "Anna",
    "Ben",
    "Clara",
    "David",
    "Emma",
    "Felix",
    "Jack",
    "Mia",
    "Paul",
    "Rose",
    "Florence",
    "Georgia",
    "Sydney",
)
CITIES = {  # Florence, Georgia and Sydney are persons too: the context tells
    "Berlin": "Berlin",
    "Cologne": "Köln",
    "Florence": "Florenz",
    "Georgia": "Georgien",
    "London": "London",
    "Munich": "München",
    "New_York": "New York",
    "Paris": "Paris",
    "Rome": "Rom",
    "Sydney": "Sydney",
    "Vienna": "Wien",
}

# Nouns that only say where something is.
SPOTS = {
    noun.one[0].word: noun
    for noun in _nouns(
        """
        mat - f Matte -
        sofa - n Sofa -
        bed - n Bett -
        chair - m Stuhl -
        table - m Tisch -
        floor - m Boden -
        tree - m Baum -
        bush - m Busch -
        rock - m Felsen -
        grass - n Gras -
        zoo - m Zoo -
        beach - m Strand -
        sea - n Meer -
        river - m Fluss -
        lake - m See -
        house - n Haus -
        garden - m Garten -
        kitchen - f Küche -
        basket - m Korb -
        shelf - n Regal -
        box - f Kiste -
        bag - f Tasche -
        market - m Markt -
        supermarket - m Supermarkt -
        shop - m Laden -
        office - n Büro -
        laboratory - n Labor -
        arm - m Arm -
        back - m Rücken -
        leg - n Bein -
        hand - f Hand -
        shoulder - f Schulter -
        """
    )
}
