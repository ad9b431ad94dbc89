"""German by rule and by hand: the tables of endings, the places of the verb, and sentences a native speaker wrote."""

import pytest

from little_world import sentences, translate
from little_world.adjectives import ADJECTIVES
from little_world.german import decline, join_preposition, noun_form, past_form
from little_world.noun_groups import ANIMALS, THINGS
from little_world.nouns import (
    BURROWS,
    DEVICES,
    EXPERIMENTS,
    FEED,
    FISH,
    FRUIT,
    HEALERS,
    ROLES,
    SHOPS,
    SIGHTS,
    SKIN,
    SPOTS,
    SUBSTANCES,
    TREATS,
    VESSELS,
)
from little_world.verbs import VERBS

NOUNS = {
    noun.name: noun
    for noun in (
        *(*ANIMALS, *BURROWS, *DEVICES, *EXPERIMENTS, *FEED, *FISH, *FRUIT, *HEALERS, *ROLES, *SHOPS, *SIGHTS, *SKIN),
        *(*SPOTS.values(), *SUBSTANCES, *THINGS, *TREATS, *VESSELS),
    )
}

GENDERS = {
    "m": """Hund Hamster Löwe Elefant Bär Affe Fuchs Wolf Igel Maulwurf Seelöwe Pinguin Fisch Tunnel
        Apfel Pfirsich Apfelkuchen Apfelsaft Orangensaft Kirschkuchen Laden Ball Drachen Turm
        Computer Apple-Computer Laptop Apple-Laptop
        Markt Park Bahnhof Ausschlag Sauerstoff Wasserstoff Stickstoff Kolben Tank Junge Student Lehrer Arzt Chirurg
        Stuhl Tisch Boden Baum Busch Felsen Zoo Strand Fluss See Garten Korb Supermarkt Arm Rücken""",
    "f": """Katze Ente Maus Ziege Karotte Nuss Orange Banane Zitrone Birne Pflaume Kirsche Erdbeere Kamera Sony-Kamera
        Puppe Lampe Kirche Brücke Warze Narbe Flasche Krankenschwester Matte Küche Kiste Tasche Hand Schulter""",
    "n": """Kaninchen Zebra Loch Zitroneneis Handy Tablet Apple-Handy Apple-Tablet Samsung-Handy Samsung-Tablet
        Nokia-Handy Nokia-Tablet Sony-Handy Löwen-Kuscheltier Seelöwen-Kuscheltier Elefanten-Kuscheltier
        Mäuse-Kuscheltier Buch Auto Fahrrad Museum Schloss Muttermal Wasser Helium Methan Kohlendioxid Experiment
        Mädchen Sofa Bett Gras Meer Haus Regal Büro Labor Bein""",
}


def test_every_noun_has_its_gender() -> None:
    found = {name: noun.gender for name, noun in NOUNS.items()}
    assert found == {name: gender for gender, names in GENDERS.items() for name in names.split()}


MASCULINE = {
    "nominative": ("der kleine Hund", "dieser kleine Hund", "ein kleiner Hund"),
    "accusative": ("den kleinen Hund", "diesen kleinen Hund", "einen kleinen Hund"),
    "dative": ("dem kleinen Hund", "diesem kleinen Hund", "einem kleinen Hund"),
}
FEMININE = {
    "nominative": ("die kleine Katze", "diese kleine Katze", "eine kleine Katze"),
    "accusative": ("die kleine Katze", "diese kleine Katze", "eine kleine Katze"),
    "dative": ("der kleinen Katze", "dieser kleinen Katze", "einer kleinen Katze"),
}
NEUTER = {
    "nominative": ("das kleine Muttermal", "dieses kleine Muttermal", "ein kleines Muttermal"),
    "accusative": ("das kleine Muttermal", "dieses kleine Muttermal", "ein kleines Muttermal"),
    "dative": ("dem kleinen Muttermal", "diesem kleinen Muttermal", "einem kleinen Muttermal"),
    "genitive": ("des kleinen Muttermals", "dieses kleinen Muttermals", "eines kleinen Muttermals"),
}
PLURAL = {
    "nominative": ("die kleinen Hunde", "zwei kleine Hunde", "kleine Hunde"),
    "accusative": ("die kleinen Hunde", "zwei kleine Hunde", "kleine Hunde"),
    "dative": ("den kleinen Hunden", "zwei kleinen Hunden", "kleinen Hunden"),
}


@pytest.mark.parametrize(
    ("noun", "table"), [("Hund", MASCULINE), ("Katze", FEMININE), ("Muttermal", NEUTER)], ids=["m", "f", "n"]
)
def test_singular_endings(noun: str, table: dict[str, tuple[str, ...]]) -> None:
    small = (ADJECTIVES["little"],)
    for case, phrases in table.items():
        assert tuple(decline(a, small, NOUNS[noun], case) for a in ("der", "dieser", "ein")) == phrases  # type: ignore[arg-type]


def test_plural_endings() -> None:
    small = (ADJECTIVES["small"],)
    for case, phrases in PLURAL.items():
        found = tuple(decline(a, small, NOUNS["Hund"], case, plural=True) for a in ("der", "zwei", ""))  # type: ignore[arg-type]
        assert found == phrases


def test_without_an_article_the_adjective_shows_the_case() -> None:
    pure = (ADJECTIVES["pure"],)
    cases = ("nominative", "accusative", "dative")
    oxygen = [decline("", pure, NOUNS["Sauerstoff"], case) for case in cases]  # type: ignore[arg-type]
    helium = [decline("", pure, NOUNS["Helium"], case) for case in cases]  # type: ignore[arg-type]
    assert oxygen == ["reiner Sauerstoff", "reinen Sauerstoff", "reinem Sauerstoff"]
    assert helium == ["reines Helium", "reines Helium", "reinem Helium"]


def test_weak_nouns_and_dative_plurals() -> None:
    for name, oblique in {"Löwe": "Löwen", "Bär": "Bären", "Elefant": "Elefanten", "Junge": "Jungen"}.items():
        assert noun_form(NOUNS[name], "nominative", plural=False) == name
        assert noun_form(NOUNS[name], "accusative", plural=False) == oblique
    datives = {"Apfel": "Äpfeln", "Katze": "Katzen", "Handy": "Handys", "Kaninchen": "Kaninchen", "Turm": "Türmen"}
    for name, dative in datives.items():
        assert noun_form(NOUNS[name], "dative", plural=True) == dative


def test_stems_that_lose_a_vowel() -> None:
    words = {"expensive": "teure", "sour": "saure", "dark": "dunkle", "tired": "müde"}
    for english, german in words.items():
        assert decline("der", (ADJECTIVES[english],), NOUNS["Katze"], "nominative") == f"die {german} Katze"


def test_prepositions_melt_with_dem_only() -> None:
    phrases = {("in", "dem Garten"): "im Garten", ("an", "dem Arm"): "am Arm", ("von", "dem Baum"): "vom Baum"}
    phrases |= {("in", "der Küche"): "in der Küche", ("auf", "dem Bett"): "auf dem Bett", ("von", "Anna"): "von Anna"}
    for (preposition, phrase), said in phrases.items():
        assert join_preposition(preposition, phrase) == said


def test_past_plurals() -> None:
    forms = {"sleep": "schliefen", "buy": "kauften", "sit": "saßen", "charge": "luden", "stroke": "streichelten"}
    assert {name: past_form(VERBS[name], plural=True) for name in forms} == forms


def test_the_verb_stands_where_it_belongs() -> None:
    """After `dass` and `weil` it is last; after a time it comes before the subject."""
    finite = {verb.prefix + past_form(verb, plural=many) for verb in VERBS.values() for many in (False, True)}
    bare = {past_form(verb, plural=many) for verb in VERBS.values() for many in (False, True)}
    last, second = 0, 0
    for sentence in sentences(split="train", seed=3, count=4000):
        if ", dass" in sentence.german:
            assert sentence.german[:-1].split()[-1] in finite | {"ist", "sind"}
            last += 1
        if ", weil" in sentence.german:
            assert sentence.german[:-1].split()[-1] in ("war", "waren")
        for time in ("Gestern ", "Heute ", "Letzte Woche ", "Am Montag ", "Am Sonntag ", "Am Abend "):
            if sentence.german.startswith(time):
                assert sentence.german.removeprefix(time).split()[0] in bare
                second += 1
    assert last > 200
    assert second > 200


PAIRS = """
The fat ginger cat sat on a mat. = Die dicke rote Katze saß auf einer Matte.
The European mole is a mammal. = Der Europäische Maulwurf ist ein Säugetier.
Take a biopsy of the mole. = Machen Sie eine Biopsie des Muttermals.
Take a biopsy of this dark wart on the hand. = Machen Sie eine Biopsie dieser dunklen Warze an der Hand.
One mole of carbon dioxide. = Ein Mol Kohlendioxid.
A lion. = Ein Löwe.
A sea lion. = Ein Seelöwe.
A sea lion cuddly toy. = Ein Seelöwen-Kuscheltier.
An apple and an orange. = Ein Apfel und eine Orange.
An Apple phone. = Ein Apple-Handy.
I want to buy a car. = Ich möchte ein Auto kaufen.
Yesterday Anna bought a new phone. = Gestern kaufte Anna ein neues Handy.
Anna bought a new phone yesterday. = Anna kaufte gestern ein neues Handy.
Anna has bought a new phone. = Anna hat ein neues Handy gekauft.
A new phone was bought by Anna. = Ein neues Handy wurde von Anna gekauft.
Anna wants to buy a new phone. = Anna möchte ein neues Handy kaufen.
Ben knows that Anna bought a new phone. = Ben weiß, dass Anna ein neues Handy kaufte.
Anna bought the phone because it was cheap. = Anna kaufte das Handy, weil es billig war.
The cat slept on the sofa because it was tired. = Die Katze schlief auf dem Sofa, weil sie müde war.
The dog slept in the basket because it was tired. = Der Hund schlief im Korb, weil er müde war.
Two dogs waited in the garden because they were hungry. = Zwei Hunde warteten im Garten, weil sie hungrig waren.
When Ben came home, two dogs lay under the table. = Als Ben nach Hause kam, lagen zwei Hunde unter dem Tisch.
Clara switched off the old computer. = Clara schaltete den alten Computer aus.
Clara wants to switch off the old computer. = Clara möchte den alten Computer ausschalten.
Clara has switched off the old computer. = Clara hat den alten Computer ausgeschaltet.
Paul knows that Clara switched off the old computer. = Paul weiß, dass Clara den alten Computer ausschaltete.
Switch off the phone. = Schalten Sie das Handy aus.
Yesterday the doctor looked at a red scar. = Gestern sah der Arzt eine rote Narbe an.
The fox has followed a small dog. = Der Fuchs ist einem kleinen Hund gefolgt.
The sea lions followed the penguin. = Die Seelöwen folgten dem Pinguin.
Anna gave the hungry monkey a banana. = Anna gab dem hungrigen Affen eine Banane.
Anna has given the elephants two carrots. = Anna hat den Elefanten zwei Karotten gegeben.
Mia showed the boy a red ball. = Mia zeigte dem Jungen einen roten Ball.
Mia ate the ripe apple. = Mia aß den reifen Apfel.
The rabbit ate an apple. = Das Kaninchen fraß einen Apfel.
The doctor examined the mole on the arm. = Der Arzt untersuchte das Muttermal am Arm.
The mole dug a large tunnel. = Der Maulwurf grub einen großen Tunnel.
Two moles were removed by a friendly surgeon. = Zwei Muttermale wurden von einem freundlichen Chirurgen entfernt.
One mole of oxygen weighs 32 grams. = Ein Mol Sauerstoff wiegt 32 Gramm.
Three moles of pure oxygen weigh 96 grams. = Drei Mol reiner Sauerstoff wiegen 96 Gramm.
David heated two moles of pure oxygen in the laboratory. = David erhitzte zwei Mol reinen Sauerstoff im Labor.
Yesterday the girl cooled one mole of water. = Gestern kühlte das Mädchen ein Mol Wasser ab.
The flask contained two moles of helium. = Der Kolben enthielt zwei Mol Helium.
The experiment with one mole of helium was boring. = Das Experiment mit einem Mol Helium war langweilig.
Florence lives in Florence. = Florence lebt in Florenz.
Georgia flew to Georgia. = Georgia flog nach Georgien.
Sydney has travelled to Rome. = Sydney ist nach Rom gereist.
There is a famous tower in Paris. = In Paris gibt es einen berühmten Turm.
The old church in Cologne is beautiful. = Die alte Kirche in Köln ist schön.
Visit the quiet old museums in Vienna. = Besuchen Sie die ruhigen alten Museen in Wien.
Apple pie is sweet. = Apfelkuchen ist süß.
Apple phones are expensive. = Apple-Handys sind teuer.
Apple sells phones. = Apple verkauft Handys.
Apple opened a new shop in New York. = Apple eröffnete einen neuen Laden in New York.
Felix loves sweet apple juice. = Felix liebt süßen Apfelsaft.
Emma hates ripe bananas. = Emma hasst reife Bananen.
The lemon is small but wonderful. = Die Zitrone ist klein, aber wunderbar.
The black tablets were cheap and fast. = Die schwarzen Tablets waren billig und schnell.
Rose thinks that the phone is not useful. = Rose glaubt, dass das Handy nicht nützlich ist.
An elephant is bigger than a mouse. = Ein Elefant ist größer als eine Maus.
A mouse is smaller than a lion. = Eine Maus ist kleiner als ein Löwe.
Sea lions live in the sea. = Seelöwen leben im Meer.
Moles live under the ground. = Maulwürfe leben unter der Erde.
Cherries grow on trees. = Kirschen wachsen auf Bäumen.
Lions are predators. = Löwen sind Raubtiere.
The penguins swam in the lake. = Die Pinguine schwammen im See.
A pear fell from the tree. = Eine Birne fiel vom Baum.
The wolf slept behind a bush in the evening. = Der Wolf schlief am Abend hinter einem Busch.
Jack bought three sour plums at the market. = Jack kaufte drei saure Pflaumen auf dem Markt.
Ben lost the expensive camera. = Ben verlor die teure Kamera.
This broken car was repaired by the teacher. = Dieses kaputte Auto wurde vom Lehrer repariert.
Anna bought two ripe apples and a lemon. = Anna kaufte zwei reife Äpfel und eine Zitrone.
Last week the tired girl found a kite. = Letzte Woche fand das müde Mädchen einen Drachen.
The girl hugged the sea lion cuddly toy. = Das Mädchen umarmte das Seelöwen-Kuscheltier.
"""


@pytest.mark.parametrize("pair", PAIRS.strip().splitlines())
def test_translations_written_by_hand(pair: str) -> None:
    english, german = pair.split(" = ")
    assert translate(english) == german
