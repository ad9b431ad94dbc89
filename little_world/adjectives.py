"""The adjectives: their German, their order before a noun, and which of them exclude each other."""

from little_world.word_types import NEUTRAL, Adjective, Mood, spell

# The order in which English (and German) puts them.
RANKS = OPINION, SIZE, STATE, AGE, COLOUR, ORIGIN = tuple(range(6))

# english german[/stem before an ending][=what it is a synonym of]
_ADJECTIVES: dict[tuple[int, str, Mood], str] = {
    (OPINION, "opinion", "positive"): """
        wonderful wunderbar; beautiful schön; friendly freundlich; clever klug; delicious köstlich; useful nützlich;
        exciting spannend""",
    (OPINION, "opinion", "negative"): """
        terrible schrecklich; ugly hässlich; unfriendly unfreundlich; useless nutzlos; boring langweilig""",
    (SIZE, "size", NEUTRAL): "big groß; large groß =big; small klein; little klein =small; fat dick",
    (STATE, "hunger", NEUTRAL): "hungry hungrig",
    (STATE, "thirst", NEUTRAL): "thirsty durstig",
    (STATE, "rest", NEUTRAL): "tired müde/müd",
    (STATE, "speed", NEUTRAL): "fast schnell; slow langsam",
    (STATE, "speed", "negative"): "broken kaputt",  # and so neither fast nor slow
    (STATE, "price", NEUTRAL): "cheap billig; expensive teuer/teur",
    (STATE, "ripeness", NEUTRAL): "ripe reif",
    (STATE, "ripeness", "negative"): "rotten faul",
    (STATE, "taste", NEUTRAL): "sweet süß; sour sauer/saur",
    (STATE, "touch", NEUTRAL): "soft weich",
    (STATE, "noise", NEUTRAL): "quiet ruhig",
    (STATE, "fame", NEUTRAL): "famous berühmt",
    (STATE, "form", NEUTRAL): "round rund",
    (STATE, "purity", NEUTRAL): "pure rein; clean sauber",
    (STATE, "heat", NEUTRAL): "warm warm",
    (AGE, "age", NEUTRAL): "old alt; young jung; new neu",
    (COLOUR, "colour", NEUTRAL): """
        ginger rot; black schwarz; white weiß; brown braun; red rot; green grün; yellow gelb; blue blau;
        dark dunkel/dunkl""",
    (ORIGIN, "origin", NEUTRAL): "European Europäisch; African Afrikanisch; Asian Asiatisch",
}


def _adjectives() -> dict[str, Adjective]:
    adjectives = {}
    for (rank, axis, mood), table in _ADJECTIVES.items():
        for entry in table.split(";"):
            english, german, *synonym = entry.split()
            whole, _, stem = german.partition("/")
            adjectives[english] = Adjective(
                tokens=spell(english, "ADJ"),
                combination=synonym[0][1:] if synonym else english,
                rank=rank,
                axis=axis,
                mood=mood,
                german=whole,
                stem=stem or whole,
            )
    return adjectives


ADJECTIVES = _adjectives()
