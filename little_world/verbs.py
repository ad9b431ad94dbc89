"""The verbs, with the forms that both languages need."""

from little_world.word_types import Token, Tokens, Verb

_VERBS = """
    sleep slept slept schlafen schlief geschlafen
    lie lay lain liegen lag gelegen
    sit sat sat sitzen saß gesessen
    wait waited waited warten wartete gewartet
    stand stood stood stehen stand gestanden
    swim swam swum schwimmen schwamm geschwommen sein
    chase chased chased jagen jagte gejagt
    follow followed followed folgen folgte gefolgt sein dative
    watch watched watched beobachten beobachtete beobachtet
    see saw seen sehen sah gesehen
    look_at looked_at looked_at an+sehen sah angesehen
    eat ate eaten essen aß gegessen
    devour ate eaten fressen fraß gefressen
    feed fed fed füttern fütterte gefüttert
    stroke stroked stroked streicheln streichelte gestreichelt
    wash washed washed waschen wusch gewaschen
    give gave given geben gab gegeben
    show showed shown zeigen zeigte gezeigt
    dig dug dug graben grub gegraben
    buy bought bought kaufen kaufte gekauft
    sell sold sold verkaufen verkaufte verkauft
    peel peeled peeled schälen schälte geschält
    pick picked picked pflücken pflückte gepflückt
    pick_up picked_up picked_up auf+heben hob aufgehoben
    fall fell fallen fallen fiel gefallen sein
    lose lost lost verlieren verlor verloren
    find found found finden fand gefunden
    use used used benutzen benutzte benutzt
    clean cleaned cleaned reinigen reinigte gereinigt
    repair repaired repaired reparieren reparierte repariert
    switch_on switched_on switched_on ein+schalten schaltete eingeschaltet
    switch_off switched_off switched_off aus+schalten schaltete ausgeschaltet
    charge charged charged auf+laden lud aufgeladen
    ring rang rung klingeln klingelte geklingelt
    open opened opened eröffnen eröffnete eröffnet
    hug hugged hugged umarmen umarmte umarmt
    visit visited visited besuchen besuchte besucht
    photograph photographed photographed fotografieren fotografierte fotografiert
    travel travelled travelled reisen reiste gereist sein
    fly flew flown fliegen flog geflogen sein
    examine examined examined untersuchen untersuchte untersucht
    remove removed removed entfernen entfernte entfernt
    treat treated treated behandeln behandelte behandelt
    heat heated heated erhitzen erhitzte erhitzt
    cool cooled cooled ab+kühlen kühlte abgekühlt
    weigh weighed weighed wiegen wog gewogen
    contain contained contained enthalten enthielt enthalten
"""


def _verb(entry: str) -> Verb:
    base, past, participle, infinitive, german_past, german_participle, *marks = entry.split()
    prefix, _, stem = infinitive.rpartition("+")
    english = "eat" if base == "devour" else base  # animals eat another verb in German: fressen
    return Verb(
        name=base,
        base=_verb_tokens(english),
        past=_verb_tokens(past),
        participle=_verb_tokens(participle),
        prefix=prefix,
        infinitive=stem,
        german_past=german_past,
        german_participle=german_participle,
        auxiliary="sein" if "sein" in marks else "haben",
        dative="dative" in marks,
    )


def _verb_tokens(phrase: str) -> Tokens:
    verb, *particle = phrase.split("_")
    return (Token(verb, "VERB"), *(Token(word, "ADP") for word in particle))


VERBS = {verb.name: verb for verb in map(_verb, _VERBS.strip().splitlines())}
