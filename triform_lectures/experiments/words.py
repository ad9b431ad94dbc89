"""Experiments on words in trained models: nouns and adjectives, moles and lions."""

from triform.charts import curve, heat, lines
from triform_lectures import slides, trained_models
from triform_lectures.assets import find_model
from triform_lectures.chapters.embeddings import mean_cosines, read_streams
from triform_lectures.experiments.adjectives import find_best_head
from triform_lectures.lesson import CONDITION, Evidence, claim, lesson, table


@lesson(
    "adjectives",
    title="Which head looks from nouns to adjectives",
    where=slides.ANATOMY,
    slide="Imagine a head whose queries come from nouns and look for adjectives.",
    expects=CONDITION,
    kind="trained",
)
def adjectives() -> Evidence:
    """Every head of the little encoder and decoder, measured with the grammar's own labels."""
    found = {
        "encoder": find_best_head(trained_models.load_little_model("pair")),
        "decoder": find_best_head(trained_models.load_little_model("decoder")),
    }
    best = max(found.values(), key=lambda each: each.share / each.chance)
    return Evidence(
        claims=(
            claim(
                "there is such a head",
                best.share > 1.2 * best.chance,
                f"best share {best.share:.2f}, even shares {best.chance:.2f}",
                only_if="a leaning is enough",
                anyway=best.share > 0.5,
            ),
        ),
        tables=tuple(
            table(
                f"{name}: share of a noun's attention on its adjective ({each.pairs} pairs)",
                ["layer", *(f"head {h}" for h in range(4))],
                [[i, *(f"{x:.2f}" for x in row)] for i, row in enumerate(each.all)],
            )
            for name, each in found.items()
        ),
        plots=tuple(
            heat(
                f"{name}: layer (row) and head (column)",
                each.all,
                [str(i) for i in range(len(each.all))],
                [str(h) for h in range(4)],
            )
            for name, each in found.items()
        ),
    )


@lesson(
    "moles",
    title="Three moles and three lions through the layers",
    where=slides.ANATOMY,
    slide="One initial embedding, a unique vector for each context.",
    kind="trained",
)
def moles() -> Evidence:
    """The cosine between the three moles, and between the three lions, at every place of the stream: in our encoder, in
    our decoder, and in MiniLM if it is installed on this machine. In the decoder a word's vector depends only on what
    comes before it: 'take a biopsy of the' tells a mole apart, the mammal that follows does not."""
    models = {
        "encoder": trained_models.load_little_model("pair"),
        "decoder": trained_models.load_little_model("decoder"),
        "MiniLM": find_model("minilm"),
    }
    texts = {
        "mole": tuple(f"{text}." for text in slides.MOLES),
        "lion": ("A lion.", "A sea lion.", "A sea lion cuddly toy."),
    }
    found = {}
    for name, model in models.items():
        if model is not None:
            found[name] = {
                word: mean_cosines(read_streams(model, each, word)[1]).tolist() for word, each in texts.items()
            }
    rows = [
        [name, word, *(f"{x:.2f}" for x in (each[word][0], min(each[word]), each[word][-1]))]
        for name, each in found.items()
        for word in texts
    ]
    return Evidence(
        claims=(
            claim(
                "at the start they are one vector",
                all(abs(each[word][0] - 1) < 1e-6 for each in found.values() for word in texts),
                "cosine 1 everywhere",
            ),
            claim(
                "at the end they are not",
                all(each[word][-1] < 0.99 for each in found.values() for word in texts),
                "see the table",
            ),
        ),
        tables=(table("Mean cosine between the three", ["model", "word", "start", "least", "end"], rows),),
        plots=tuple(
            lines(
                f"Cosine between the three {word}s",
                "place in the stream",
                "cosine",
                [curve(name, range(len(each[word])), each[word]) for name, each in found.items()],
            )
            for word in texts
        ),
    )
