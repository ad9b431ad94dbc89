"""Cross-attention of a trained translator: which source words it uses, and how it aligns them. Part of the chapter on
cross-attention."""

from collections.abc import Sequence

import torch
from torch import Tensor

from triform.charts import heat
from triform.inspect.view import look
from triform_lectures import slides, trained_models
from triform_lectures.lesson import MISTAKE, Evidence, claim, lesson, numbers, wrong_claim

SENTENCE = "Three dark scars were treated by a young nurse."
TRANSLATION = "Drei dunkle Narben wurden von einer jungen Krankenschwester behandelt."
GOLD = {
    "Drei": "Three",
    "dunkle": "dark",
    "Narben": "scars",
    "wurden": "were",
    "von": "by",
    "einer": "a",
    "jungen": "young",
    "Krankenschwester": "nurse",
    "behandelt": "treated",
}


def count_hits(weights: Tensor, written: Sequence[str], sources: Sequence[str]) -> int:
    """How many target words have their largest weight on the word they translate."""
    return sum(sources[int(row.argmax())] == GOLD.get(word) for word, row in zip(written, weights, strict=True))


@lesson(
    "3.10",
    title="The first query does not rely on one word",
    where=slides.QUIZZES,
    slide="The query of <SOS> relies only on the K and V of the word 'I' to predict 'Ich', and so for every "
    "decoder word.",
    expects=MISTAKE,
    mistakes=("E16",),
    kind="trained",
)
def not_one_word() -> Evidence:
    """In a translator trained on the little world more than half of the heads of the first query look hardest at the
    first word, but not all of them, and no weight is 0. Nor could one word be enough: German has 'der', 'die' and 'das'
    for 'the', and the noun behind it decides. Change only that noun, and the first word written changes with it."""
    model, own = trained_models.load_little_model("pair"), trained_models.load_world().both_tokenizer
    sources = ("The doctor looked at the small dark mole.", "The nurse looked at the small dark mole.")
    views = [look(model, source, start=model.generation.first) for source in sources]
    words = views[0].texts["encoder"].labels
    every = [torch.tensor(views[0].attention(layer, kind="cross").values)[:, 0] for layer in range(2)]
    weights = torch.cat(every)  # heads × source words, of the first query
    most, hardest = weights.max(-1)
    first = int((hardest == 0).sum())
    looked_at = list(dict.fromkeys(words[i] for i in hardest.tolist()))
    written = [own.decode([int(view.logits[0, 0].argmax())]) for view in views]
    return Evidence(
        claims=(
            wrong_claim(
                "the first query looks at one source word only",
                len(looked_at) == 1,
                f"the heads look hardest at: {', '.join(looked_at)}; largest weight in each head: "
                f"{numbers(most.tolist())}",
            ),
        ),
        facts=(
            claim(
                "more than half of the heads look hardest at the first word",
                first > len(hardest) / 2,
                f"{first} of {len(hardest)}",
            ),
            claim("every source word has a weight above 0", bool((weights > 0).all()), f"{weights.numel()} weights"),
            claim(
                "another noun behind 'The', another first word",
                written[0] != written[1],
                f"'The doctor …' → '{written[0]} …', 'The nurse …' → '{written[1]} …'",
            ),
        ),
        plots=(
            heat(
                "Cross-attention of the first query",
                weights.tolist(),
                [f"layer {i // 4}, head {i % 4}" for i in range(8)],
                words,
            ),
        ),
    )


@lesson(
    "1.10",
    title="Alignment",
    where=slides.LECTURE_10,
    slide="Cross-attention lets each target position look at all source positions, like attention in "
    "sequence-to-sequence models; it emphasises the relevant parts.",
    kind="trained",
)
def alignment() -> Evidence:
    """Averaged over the heads of a layer, the translator's cross-attention draws the alignment of a sentence and its
    translation: in one of the two layers most target words attend most to the source word they translate, though no
    alignment was given in training. For Bahdanau's attention, in an RNN, see the experiment `rnn-world`."""
    model = trained_models.load_little_model("pair")
    view = look(model, SENTENCE, TRANSLATION, start=model.generation.first)
    maps = torch.stack([torch.tensor(view.attention(layer, kind="cross").values).mean(0) for layer in range(2)])
    sources = list(view.texts["encoder"].labels)
    written = [*view.texts["decoder"].labels[1:], "</s>"]  # the word each query is about to write
    by_layer = [count_hits(weights, written, sources) for weights in maps]
    layer, found = by_layer.index(max(by_layer)), max(by_layer)
    chance = len(GOLD) / len(sources)
    return Evidence(
        claims=(
            claim(
                "each target position looks over all source positions",
                bool((maps > 0).all()),
                f"{maps.shape[1]} × {maps.shape[2]} weights, none 0",
            ),
            claim(
                "it emphasises the relevant word",
                found > len(GOLD) / 2,
                f"{found} of {len(GOLD)} words look hardest at the word they translate in layer {layer}, "
                f"{min(by_layer)} in the other; by chance it would be {chance:.1f}",
            ),
        ),
        plots=(
            heat(
                f"Cross-attention of layer {layer}, mean of the heads: row = word about to be written",
                maps[layer].tolist(),
                written,
                sources,
            ),
        ),
    )
