"""Training: shift by one, six losses, and what happens without a mask."""

import math

import numpy as np
import torch

from triform.charts import curve, lines
from triform.core.initial_weights import build_network
from triform.core.texts import Pair
from triform.families import gpt2, vaswani
from triform.train.examples import ExamplePlace, SourceTarget, TokenExample
from triform.train.objectives import IGNORED
from triform.train.token_objectives import MaskedToken, NextToken, SequenceToSequence
from triform_lectures import slides
from triform_lectures.experiments.unmasked import compare_masks
from triform_lectures.lesson import CONDITION, MISTAKE, Chapter, Evidence, claim, lesson, near, table, wrong_claim
from triform_lectures.random_models import compare, ids, translator_network

WORDS = tuple(dict.fromkeys(slides.MAT))  # the cat sat on mat </s>


@lesson(
    "4.18",
    title="Six losses",
    where=slides.JHU,
    slide="Shift the text by one: X = the cat sat on the mat, Y = cat sat on the mat </s>. Each position "
    "gives a distribution and a loss; the sum is the loss.",
)
def six_losses() -> Evidence:
    """Six tokens go in, six targets should come out, each one place on. The loss that the trainer computes is the sum
    of six terms −log p(target), and each can be computed by hand from the logits."""
    tokens = [WORDS.index(word) for word in slides.MAT]
    network = build_network(
        gpt2(vocab=len(WORDS), width=32, layers=2, heads=4, context=16), seed=0, dtype=torch.float64
    )
    objective = NextToken()
    item = objective.make_item(TokenExample(tokens), ExamplePlace(0, 0, 0))
    batch = objective.batch([TokenExample(tokens)], places=[ExamplePlace(0, 0, 0)], device="cpu")
    with torch.no_grad():
        loss = objective.loss(network, batch)
        p = network(ids(*tokens[:-1]))[0].softmax(-1)
    terms = [-math.log(float(p[t, goal])) for t, goal in enumerate(tokens[1:])]
    inputs, targets = [WORDS[i] for i in np.asarray(item.ids)], [WORDS[i] for i in item.targets]
    return Evidence(
        claims=(
            claim("X = the cat sat on the mat", inputs == list(slides.MAT[:-1]), " ".join(inputs)),
            claim("Y = cat sat on the mat </s>", targets == list(slides.MAT[1:]), " ".join(targets)),
            claim(
                "the loss is the sum of the losses of all positions",
                near(float(loss.total), sum(terms)),
                f"{' + '.join(f'{x:.3f}' for x in terms)} = {float(loss.total):.3f}",
            ),
        ),
        facts=(
            claim("six terms", loss.targets == 6, str(loss.targets)),
            claim(
                "before learning each is near ln V",
                all(near(x, math.log(len(WORDS)), 0.5) for x in terms),
                f"ln {len(WORDS)} = {math.log(len(WORDS)):.2f}",
            ),
        ),
        tables=(
            table(
                "Position by position",
                ["input", "target", "p", "−log p"],
                [[a, b, f"{math.exp(-x):.3f}", f"{x:.3f}"] for a, b, x in zip(inputs, targets, terms, strict=True)],
            ),
        ),
    )


@lesson(
    "4.8",
    title="Without a mask it copies",
    where=slides.JHU,
    slide="Without masking the model solves the task by copying the next token to the output; it learns "
    "nothing useful.",
    kind="trained",
)
def without_mask() -> Evidence:
    """Two equal models, 200 steps each on the little world, one of them without a mask. Its loss falls far below that
    of the masked one, since it reads the next word; and in decoding, where there is no next word to read, it does far
    worse than the masked one."""
    masked, unmasked = compare_masks()
    reads, honest = unmasked.trial.losses[-1], masked.trial.losses[-1]
    return Evidence(
        claims=(
            claim(
                "without the mask the loss goes toward 0",
                reads < 0.25 * honest,
                f"{reads:.2f}, with the mask {honest:.2f}",
            ),
            claim(
                "and the model has learned nothing useful: writing, it fails",
                unmasked.writing > masked.writing + 1.0,
                f"loss of the next word when it cannot be read: {unmasked.writing:.2f} against {masked.writing:.2f}",
            ),
        ),
        facts=(claim("with the mask the next word cannot be known: a loss remains", honest > 1.0, f"{honest:.2f}"),),
        tables=(
            table(
                "What each writes, word by word",
                ["model", "text"],
                [["masked", masked.text], ["unmasked", unmasked.text]],
            ),
        ),
        plots=(
            lines(
                "Loss in training",
                "step",
                "loss",
                [
                    curve(name, each.trial.steps, each.trial.losses)
                    for name, each in (("masked", masked), ("no mask", unmasked))
                ],
            ),
        ),
    )


def find_trained_groups() -> dict[str, tuple[bool, str]]:
    """Which numbers of a 2017 Transformer a loss sends a gradient to, by the names of the slide's quiz."""
    network = build_network(vaswani(vocab=20, width=16, layers=1, heads=2, context=8), seed=0)
    objective = SequenceToSequence(start=0)
    batch = objective.batch([SourceTarget([3, 4, 5], [6, 7])], places=[ExamplePlace(0, 0, 0)], device="cpu")
    objective.loss(network, batch).total.backward()  # type: ignore[no-untyped-call]
    reached = {path for path, p in network.named_parameters() if p.grad is not None and bool(p.grad.abs().sum() > 0)}

    def any_of(part: str) -> bool:
        return any(part in path for path in reached)

    buffers = dict(network.named_buffers())
    return {
        "2 W_q, W_k (and W_v)": (any_of("qkv.weight"), "qkv.weight"),
        "3 the softmax function": (any_of("softmax"), "a function: nothing to train"),
        "4 sine/cosine positions": (
            any_of("position") or any("position" in path for path in buffers),
            "computed, not stored",
        ),
        "5 the embedding matrix": (any_of("token.weight"), "token.weight"),
        "6 W_1, W_2 of the feed-forward": (any_of("feedforward.f.up.weight"), "feedforward.f.up, down"),
        "7 W_E, read as the output matrix": (any_of("token.weight"), "token.weight, tied"),
        "γ and β of LayerNorm": (any_of("outer.weight"), "outer.weight, outer.bias"),
    }


@lesson(
    "4.17",
    title="What is optimised",
    where=slides.JHU,
    slide="Quiz: what do we optimise when we train a Transformer? Answer: 2, 6, 7 and 5; not softmax, not "
    "the sine/cosine positions.",
    expects=CONDITION,
)
def optimised() -> Evidence:
    """Every group of numbers in a network that gets a gradient. Options 2, 5, 6, 7 do, softmax and sinusoids
    do not. Option 1 cannot be read in the slide's text ('Xand g'); if it means γ and β of LayerNorm, it belongs to
    the answer, for they are trained as well."""
    groups = find_trained_groups()
    answer = {int(name[0]) for name, (trained, _) in groups.items() if trained and name[0].isdigit()}
    norms = groups["γ and β of LayerNorm"][0]
    return Evidence(
        claims=(
            claim(
                f"optimised are {', '.join(map(str, slides.OPTIMISED))} and nothing else",
                answer == set(slides.OPTIMISED),
                f"a gradient reaches {sorted(answer)}",
                only_if="option 1 is not γ and β",
                anyway=not norms,
            ),
        ),
        facts=(claim("γ and β are trained, too", norms, "outer.weight, outer.bias"),),
        tables=(
            table(
                "What training changes",
                ["option", "trained", "where"],
                [[name, "yes" if on else "no", where] for name, (on, where) in groups.items()],
            ),
        ),
    )


@lesson(
    "4.20",
    title="Training an encoder-decoder",
    where=slides.JHU,
    slide="The encoder reads 'the gray chunky cat', the decoder writes 'sat on the mat <eos>' from <bos>; "
    "training is the same as for encoder-only models.",
    expects=MISTAKE,
    mistakes=("E19",),
)
def teacher_forcing() -> Evidence:
    """It is the same as for decoder-only models: the target goes in shifted by one behind <bos>, every position has a
    loss, and the source is a condition. (Encoders are trained by filling in masked words.) One pass over the whole
    target gives the very logits that writing it step by step would meet."""
    words = list(dict.fromkeys((*slides.GRAY_CAT, *slides.SAT)))
    source = [words.index(word) for word in slides.GRAY_CAT]
    target = [words.index(word) for word in slides.SAT]
    forced = SequenceToSequence(start=target[0]).make_item(SourceTarget(source, target[1:]), ExamplePlace(0, 0, 0))
    filled = MaskedToken(mask=0, vocab=len(words)).make_item(TokenExample(target), ExamplePlace(0, 0, 0))
    masked = int((filled.targets != IGNORED).sum())
    plain = NextToken().make_item(TokenExample(target), ExamplePlace(0, 0, 0))
    network = translator_network()
    with torch.no_grad():
        at_once = network(Pair(ids(*source), ids(*target[:-1])))[0]
        steps = torch.stack([network(Pair(ids(*source), ids(*target[: t + 1])))[0, -1] for t in range(5)])
    read, predicted = ([words[i] for i in side] for side in (np.asarray(forced.ids), forced.targets))
    return Evidence(
        claims=(
            claim(
                "in go <bos> sat on the mat, out come sat on the mat <eos>",
                (read, predicted) == (list(slides.SAT[:-1]), list(slides.SAT[1:])),
                f"{' '.join(read)} → {' '.join(predicted)}",
            ),
            wrong_claim(
                "training is the same as for encoder-only models",
                masked == len(forced.targets),
                f"an encoder predicts {masked} masked word of {len(target)}, the decoder all {len(forced.targets)}",
            ),
        ),
        facts=(
            claim(
                "it is the same as for decoder-only models, with a source",
                np.array_equal(forced.targets, plain.targets) and np.array_equal(forced.ids, plain.ids),
                "the same shift",
            ),
            claim("all at once = step by step", *compare(at_once, steps)),
        ),
    )


CHAPTER = Chapter(
    name="training",
    title="Training",
    opening="A language model learns from text alone: at every position it predicts the next token. This chapter "
    "computes that loss for one sentence by hand, shows which parameters training changes, and removes the mask to see "
    "what the model does when it can cheat.",
    lessons=(six_losses, optimised, teacher_forcing, without_mask),
)
