"""The three forms and their models: encoder, decoder, encoder-decoder."""

from typing import NamedTuple

import torch

from little_world import rows
from triform.core.blocks import Block
from triform.core.texts import Pair
from triform.families import named
from triform.generate.api import complete
from triform.inspect.view import look
from triform.model import Model
from triform.parameters import count_parameters
from triform_lectures import slides, trained_models
from triform_lectures.lesson import CONDITION, Chapter, Evidence, claim, lesson, numbers, table
from triform_lectures.random_models import decoder, encoder, hidden, ids, pair, translator_network

TASKS = {
    "encoder": ("text classification", "named entity recognition", "question answering", "semantic search"),
    "decoder": ("next word", "sentence completion", "question answering"),
    "encoder-decoder": ("machine translation", "summarisation"),
}
EXAMPLES = {
    "t5-small": "encoder-decoder",
    "flan-t5-small": "encoder-decoder",
    "bert-base": "encoder",
    "distilbert-base": "encoder",
    "gpt2-small": "decoder",
    "llama-2-7b": "decoder",
}


@lesson(
    "0.1",
    title="One block for all",
    where=slides.ANATOMY,
    slide="A Transformer consists of an encoder and/or a decoder block; tokens go in as embeddings.",
)
def one_block() -> Evidence:
    """All three forms here are built from one block class. An encoder's and a decoder's block have the same parts; what
    differs is the mask, and that a decoder with a source has cross-attention, too."""
    networks = {"encoder": encoder().network, "decoder": decoder().network, "encoder-decoder": pair().network}
    blocks = {name: [m for m in network.modules() if isinstance(m, Block)] for name, network in networks.items()}
    parts = {name: [part for part, _ in each[-1].named_children()] for name, each in blocks.items()}
    kinds = {type(block) for each in blocks.values() for block in each}
    with torch.no_grad():
        entered = networks["decoder"].token(torch.tensor([[3, 1, 4]]))
    return Evidence(
        claims=(
            claim(
                "encoder and/or decoder: three forms",
                len(blocks) == 3 and all(blocks.values()),
                ", ".join(f"{name} {len(each)} blocks" for name, each in blocks.items()),
            ),
            claim("tokens enter as embeddings", entered.shape == (1, 3, 32), "3 tokens → 3 vectors of 32"),
        ),
        facts=(
            claim("one class of block", len(kinds) == 1, kinds.pop().__name__),
            claim(
                "encoder and decoder block: the same parts",
                parts["encoder"] == parts["decoder"],
                ", ".join(parts["encoder"]),
            ),
            claim(
                "with a source: cross-attention between them",
                parts["encoder-decoder"] == ["attention", "cross", "feedforward"],
                ", ".join(parts["encoder-decoder"]),
            ),
        ),
    )


@lesson(
    "0.2",
    title="What each form is for",
    where=slides.ANATOMY,
    slide="Encoder-only models excel at classification, entities and question answering; decoder-only at "
    "predicting the next word; encoder-decoders at translation and summarisation.",
    expects=CONDITION,
)
def what_for() -> Evidence:
    """What a form can do follows from its mask: an encoder reads both sides of a gap and cannot continue a text; a
    decoder can. The lists are habits, not laws: question answering stands under encoders here and under decoders
    in another lecture, and both are right (cut out of a text, or written freely)."""
    with torch.no_grad():
        reads = [hidden(encoder(), 5, 7, left, right)[1] for left, right in ((1, 2), (1, 3), (4, 2))]
        filled = [float((other - reads[0]).abs().max()) for other in reads[1:]]
        unmoved = float(
            (decoder().network(ids(5, 7, 1, 3))[0, 1] - decoder().network(ids(5, 7, 1, 2))[0, 1]).abs().max()
        )
    both = [form for form, tasks in TASKS.items() if "question answering" in tasks]
    return Evidence(
        claims=(
            claim(
                "encoders read both sides, as gaps, labels and entities need",
                all(x > 0 for x in filled),
                "another word behind the gap moves the gap's vector by up to " + numbers(filled),
            ),
            claim(
                "decoders read only what is written, as writing needs",
                unmoved == 0.0,
                f"another later word moves it by {unmoved:g}",
            ),
            claim(
                "question answering is encoders' work",
                "encoder" in both,
                f"listed under {' and '.join(both)}",
                only_if="the answer is a stretch of the text",
                anyway=both == ["encoder"],
            ),
        ),
        tables=(
            table(
                "Forms and tasks on the slides",
                ["form", "tasks"],
                [[form, ", ".join(tasks)] for form, tasks in TASKS.items()],
            ),
        ),
    )


@lesson(
    "3.1",
    title="Quiz: how many blocks",
    where=slides.QUIZZES,
    slide="True of the 2017 Transformer: it is a neural network (A), the encoder outputs a latent "
    "representation (B), the decoder outputs tokens from it (C); false: always one block each (D).",
)
def how_many_blocks() -> Evidence:
    """Measured on the 2017 model and on a running translator: six blocks each, vectors between the two, tokens at the
    end."""
    base = named("vaswani-base")
    network = translator_network()
    with torch.no_grad():
        memory = network.encode(ids(5, 6, 7))
        out = network(Pair(ids(5, 6, 7), ids(1, 2)))
    return Evidence(
        claims=(
            claim(
                "A: a neural network: layers of trained numbers",
                count_parameters(base) > 0,
                f"{count_parameters(base):,} parameters",
            ),
            claim(
                "B: the encoder gives vectors, no tokens",
                memory.layers[0][0].is_floating_point(),
                "keys and values for each layer of the decoder",
            ),
            claim(
                "C: the decoder gives tokens, from that",
                out.shape[-1] == pair().spec.vocab,
                f"a score for each of {out.shape[-1]} tokens",
            ),
            claim(
                "not D: more than one block",
                all(stack.layers > 1 for stack in base.stacks.values()),
                f"{base.stacks['encoder'].layers} and {base.stacks['decoder'].layers}",
            ),
        ),
    )


class TranslatedSentence(NamedTuple):
    """A sentence of the little world, its translation by the grammar, and what a model wrote."""

    source: str
    target: str
    written: str


def translate_unseen(model: Model, *, count: int) -> list[TranslatedSentence]:
    pairs = list(rows("translate", split="test", seed=2, count=count))
    answers = complete(model, [each["source"] for each in pairs], max_tokens=40, temperature=0.0)
    return [TranslatedSentence(p["source"], p["target"], a.text) for p, a in zip(pairs, answers, strict=True)]


@lesson(
    "3.2",
    title="A translation, stage by stage",
    where=slides.QUIZZES,
    slide="The encoder turns tokens into a latent representation, the decoder turns that into tokens; each "
    "has several blocks.",
    kind="trained",
)
def translation() -> Evidence:
    """One sentence through our translator: ids, vectors, memory, scores, words. The translator is small and its
    training was short: the last line of the table says how many of 100 sentences it has not seen come out word for word
    as the grammar of the little world translates them. The one shown is the first of those."""
    model = trained_models.load_little_model("pair")
    found = translate_unseen(model, count=100)
    right = [each for each in found if each.written == each.target]
    source, target, written = (right or found)[0]
    view = look(model, source, start=model.generation.first)
    read = view.record.last_call("encoder").output
    stages = [
        ["text", source],
        ["tokens", " ".join(view.texts["encoder"].labels)],
        ["embeddings", f"{read.shape[1]} × {read.shape[2]}"],
        [
            "latent representation",
            f"{read.shape[1]} × {read.shape[2]}, after {model.spec.stacks['encoder'].layers} blocks",
        ],
        ["scores for the first word", f"{view.logits.shape[-1]:,}"],
        ["written", written],
        ["the grammar's translation", target],
        ["translated so, of unseen sentences", f"{len(right)} of {len(found)}"],
    ]
    layers = [stack.layers for stack in model.spec.stacks.values()]
    return Evidence(
        claims=(
            claim(
                "tokens → latent representation",
                read.is_floating_point() and read.shape[1] == len(view.texts["encoder"].ids),
                "a vector for each token",
            ),
            claim("latent representation → tokens", written == target, written),
            claim("several blocks each", min(layers) > 1, " and ".join(map(str, layers))),
        ),
        tables=(table("Stages", ["", ""], stages),),
    )


@lesson(
    "3.12",
    title="Quiz: where Q, K and V come from, and what BERT is",
    where=slides.QUIZZES,
    slide="Encoder-decoder attention: query from the decoder, key and value from the encoder (B). BERT is "
    "encoder-only (B).",
)
def origins_and_bert() -> Evidence:
    """Change the source: cross keys and values change, the first layer's query does not. Change the target: the
    reverse. And BERT's spec has an encoder and nothing else."""

    def parts(source: list[int], target: list[int]) -> list[torch.Tensor]:
        return [torch.tensor(x.values) for x in look(pair(), source, target).qkv(0, kind="cross")]

    base, other_source, other_target = parts([5, 6], [1, 2]), parts([7, 8], [1, 2]), parts([5, 6], [3, 4])
    moved = [[not a.equal(b) for a, b in zip(base, other, strict=True)] for other in (other_source, other_target)]
    stacks = list(named("bert-base").stacks)
    return Evidence(
        claims=(
            claim(
                "key and value: from the encoder",
                moved[0] == [False, True, True],
                "another source changes K and V only",
            ),
            claim("query: from the decoder", moved[1] == [True, False, False], "another target changes Q only"),
            claim("BERT is encoder-only", stacks == ["encoder"], ", ".join(stacks)),
        ),
    )


@lesson(
    "3.13",
    title="The models named",
    where=slides.QUIZZES,
    slide="T5 and FLAN-T5 are encoder-decoders; BERT and DistilBERT are encoders; GPT and Llama are "
    "decoders; each with its tasks.",
)
def models_named() -> Evidence:
    """Built from their specs, each has the form the slide says. That their numbers agree with the reference
    implementations is held by the tests, which load them; `triform pull` gets released weights."""
    found = {name: named(name) for name in EXAMPLES}
    return Evidence(
        claims=tuple(
            claim(f"{name}: {form}", found[name].form == form, f"{count_parameters(found[name]):,} parameters")
            for name, form in EXAMPLES.items()
        ),
        tables=(
            table(
                "The six models",
                ["model", "form", "layers", "parameters"],
                [
                    [
                        name,
                        spec.form,
                        "+".join(str(stack.layers) for stack in spec.stacks.values()),
                        f"{count_parameters(spec):,}",
                    ]
                    for name, spec in found.items()
                ],
            ),
        ),
    )


CHAPTER = Chapter(
    name="forms",
    title="The three forms and their models",
    opening="Encoder, decoder, or both: three ways to use the same block. The form decides what a model can see, and "
    "so what it is good for.",
    lessons=(one_block, what_for, how_many_blocks, translation, origins_and_bert, models_named),
)
