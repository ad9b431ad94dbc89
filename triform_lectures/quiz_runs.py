"""Runs for the quiz: each checks all options of one question, without the slide's answer."""

from collections.abc import Callable
from typing import Literal

import torch

from triform.core.build import make_cache
from triform.core.initial_weights import build_network
from triform.costs.flop_counter import count_flops
from triform.costs.predict import cost
from triform.families import gpt2, named, vaswani
from triform.inspect.interventions import with_mask, without_heads
from triform.inspect.view import look
from triform.model import Model
from triform.spec import NoPosition, Sinusoid
from triform.train.examples import ExamplePlace, TokenExample
from triform.train.token_objectives import NextToken
from triform_lectures import slides
from triform_lectures.chapters.training import find_trained_groups
from triform_lectures.formula import causal_mask
from triform_lectures.lesson import CheckedClaim, claim
from triform_lectures.random_models import decoder, encoder, hidden, ids, pair, random, same, translator_network

Answers = dict[str, CheckedClaim]


def blocks() -> Answers:
    base, network = named("vaswani-base"), translator_network()
    with torch.no_grad():
        memory = network.encode(ids(5, 6, 7))
        logits = look(pair(), [5, 6, 7], [1, 2]).logits
        other = look(pair(), [8, 9, 4], [1, 2]).logits
    layers = [stack.layers for stack in base.stacks.values()]
    trained = sum(p.requires_grad for p in network.parameters())
    return {
        "A": claim("layers of trained numbers", trained > 0, f"{trained} trained tensors"),
        "B": claim(
            "the encoder gives vectors",
            memory.layers[0][0].is_floating_point(),
            f"{memory.layers[0][0].dtype} for 3 tokens, no words",
        ),
        "C": claim(
            "the decoder scores tokens, and the source decides",
            logits.shape[-1] == 40 and not same(logits, other),
            f"{logits.shape[-1]} scores per position; another source, other scores",
        ),
        "D": claim("one block each", layers == [1, 1], f"{layers[0]} and {layers[1]} blocks in the 2017 model"),
    }


def positional() -> Answers:
    placed, free = encoder(position=Sinusoid()), encoder(position=NoPosition())

    again = hidden(placed, 1, 2, 3).equal(hidden(placed, 1, 2, 3))
    added = [look(placed, [token, 5]).record.last_call("encoder.entry.position") for token in (1, 2)]
    alike = same(*(call.output[0, 0] - call.inputs[0][0, 0] for call in added))
    moved = not same(hidden(placed, 1, 2, 3)[0], hidden(placed, 3, 2, 1)[2], within=1e-6)
    blind = same(hidden(free, 1, 2, 3)[0], hidden(free, 3, 2, 1)[2])
    flops = [cost(model.spec, phase="reading", length=32).total.forward for model in (placed, free)]
    return {
        "A": claim("it introduces randomness", not again, "the same text gives the same vectors to the last bit"),
        "B": claim(
            "it tells words of similar meaning apart",
            not alike,
            "what is added depends on the position, not on the word",
        ),
        "C": claim(
            "it represents the order", moved and blind, "with it 'a b c' and 'c b a' differ, without it they do not"
        ),
        "D": claim(
            "it makes self-attention cheaper", flops[0] < flops[1], f"{flops[0]:,} FLOPs with it, {flops[1]:,} without"
        ),
    }


def self_attention() -> Answers:
    model = encoder()
    one, other = (torch.tensor(look(model, tokens).attention(0).values) for tokens in ([1, 2, 3, 4], [1, 9, 3, 4]))
    whole = cost(model.spec, phase="reading", length=32)
    attention = sum(
        row.forward for row in whole.operations if row.name in ("QKV projection", "scores", "weighted values")
    )
    heads = {(layer, head) for layer in range(2) for head in range(4)}
    right = fit_random_labels(model)
    with without_heads(model.network, heads):
        without = fit_random_labels(model)
    return {
        "A": claim(
            "its weights follow the input",
            not same(one, other, within=1e-6),
            "another word, other weights",
        ),
        "B": claim(
            "it makes the network cheaper",
            whole.total.forward < whole.total.forward - attention,
            f"it costs {attention:,} of {whole.total.forward:,} FLOPs",
        ),
        "C": claim(
            "it makes data for training",
            len(hidden(model, 1, 2, 3)) != 3,
            "3 vectors in, 3 vectors out: no text",
        ),
        "D": claim(
            "by itself it makes a network right on what it has not seen",
            right > 0.75,
            f"random labels, unseen texts: {right:.2f} right with attention, {without:.2f} without; chance is 0.50",
        ),
    }


@torch.no_grad()
def fit_random_labels(model: Model) -> float:
    """Accuracy of a linear readout fitted on 60 texts with random labels, on 60 others."""
    rng = torch.Generator().manual_seed(0)
    texts = torch.randint(0, 40, (120, 6), generator=rng)
    labels = torch.randint(0, 2, (120, 1), generator=rng).double() * 2 - 1
    x = torch.stack([hidden(model, *text.tolist())[0] for text in texts])
    fit = torch.linalg.lstsq(x[:60], labels[:60]).solution
    return float(((x[60:] @ fit).sign() == labels[60:]).double().mean())


def concatenated() -> Answers:
    width = torch.cat([torch.zeros(slides.HEAD_WIDTH)] * slides.HEADS).numel()
    return {
        letter: claim(f"{size}", width == size, f"{slides.HEADS} vectors of {slides.HEAD_WIDTH} joined: {width}")
        for letter, size in zip("ABCD", (64, 128, 256, 512), strict=True)
    }


def masking() -> Answers:
    scores = random(6, 6, seed=2)
    open_, masked = scores.softmax(-1), (scores + causal_mask(6)).softmax(-1)
    favours = bool((masked[5] / open_[5] - 1).abs().max() > 1e-9)
    unseen = bool((masked.triu(1) == 0).all())
    lost = memorise_sentence()
    masked_flops, open_flops = count_score_flops("past"), count_score_flops("all")
    return {
        "A": claim("future positions are hidden", unseen, "their weights are exactly 0"),
        "B": claim("it raises relevant tokens over others", favours, "allowed weights keep their ratios"),
        "C": claim(
            "it prevents overfitting", lost > 0.5, f"a masked model learns one sentence by heart: loss {lost:.2f}"
        ),
        "D": claim(
            "it makes longer sequences cheaper",
            masked_flops < open_flops,
            f"{masked_flops:,} FLOPs of scores with it, {open_flops:,} without",
        ),
    }


def count_score_flops(mask: Literal["past", "all"]) -> int:
    """FLOPs that torch counts in the attention of a decoder."""
    network = decoder().network
    with with_mask(network, mask):
        counted = count_flops(network, lambda: network(ids(*range(32))))
    return int(counted.sum_over("decoder.blocks.*.attention.f.attend"))


def memorise_sentence(steps: int = 80) -> float:
    """The loss of a masked decoder after learning one sentence and nothing else."""
    words = list(dict.fromkeys(slides.MAT))
    network = build_network(gpt2(vocab=len(words), width=32, layers=1, heads=4, context=8), seed=0)
    objective, text = NextToken(), TokenExample([words.index(word) for word in slides.MAT])
    batch = objective.batch([text], places=[ExamplePlace(0, 0, 0)], device="cpu")
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = objective.loss(network, batch)
        optimizer.zero_grad()
        loss.total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return float(objective.loss(network, batch).total.detach()) / 6


def origins() -> Answers:
    def parts(source: list[int], target: list[int]) -> list[torch.Tensor]:
        return [torch.tensor(x.values) for x in look(pair(), source, target).qkv(0, kind="cross")]

    base = parts([5, 6], [1, 2])
    from_encoder = [not a.equal(b) for a, b in zip(base, parts([7, 8], [1, 2]), strict=True)]
    from_decoder = [not a.equal(b) for a, b in zip(base, parts([5, 6], [3, 4]), strict=True)]
    found = (
        "another source moves "
        + ", ".join(n for n, m in zip("QKV", from_encoder, strict=True) if m)
        + "; another target moves "
        + ", ".join(n for n, m in zip("QKV", from_decoder, strict=True) if m)
    )

    def is_origin(encoder_side: list[bool]) -> bool:
        return from_encoder == encoder_side and from_decoder == [not x for x in encoder_side]

    wanted = {"A": [True] * 3, "B": [False, True, True], "C": [True, False, True], "D": [False] * 3}
    return {letter: claim("these origins", is_origin(sides), found) for letter, sides in wanted.items()}


def bert() -> Answers:
    stacks = list(named("bert-base").stacks)
    wanted = {"A": ["decoder"], "B": ["encoder"], "C": ["encoder", "decoder"]}
    return {
        letter: claim(" and ".join(sides), stacks == sides, f"BERT has: {' and '.join(stacks)}")
        for letter, sides in wanted.items()
    }


def optimised() -> Answers:
    return {
        name[0]: claim(name[2:], on, where) for name, (on, where) in find_trained_groups().items() if name[0].isdigit()
    }


def masking_in_training() -> Answers:
    found = masking()
    return {
        "A": claim("fewer computations", found["D"].holds, found["D"].found),
        "B": found["A"],
        "C": found["B"],
    }


def cache() -> Answers:
    n, d, layers = 32, 64, 3
    spec = gpt2(vocab=40, width=d, layers=layers, heads=4, context=128)
    counted = make_cache(spec, capacity=n).bytes // 4
    sizes = {"1": 2 * n * layers, "2": 2 * d * layers, "3": n * d * layers, "4": 2 * n * d * layers}
    return {
        option: claim(f"{size:,} numbers", size == counted, f"{counted:,} allocated for n = {n}, d = {d}, L = {layers}")
        for option, size in sizes.items()
    }


def connections() -> Answers:
    layers = 3
    model = pair(layers=layers)
    view = look(model, [5, 6, 7], [1, 2])
    read = [view.record.last_call(f"decoder.blocks.{i}.cross.f.kv").inputs[0] for i in range(layers)]
    outs = [view.record.last_call(f"encoder.blocks.{i}").output for i in range(layers)]
    level = sum(same(a, b, within=1e-12) for a, b in zip(read, outs, strict=True))
    top = sum(same(a, outs[-1], within=1e-12) for a in read)
    return {
        "level by level": claim("block i reads block i", level == layers, f"{level} of {layers} decoder blocks"),
        "top to all": claim("every block reads the last", top == layers, f"{top} of {layers} decoder blocks"),
        "top to first": claim("only the first block reads", len(read) == 1, f"{len(read)} blocks read"),
    }


def pair_cost() -> Answers:
    """FLOPs of all attention scores on a grid of (n, m), fitted with the terms of each option."""
    spec = vaswani(vocab=40, width=32, layers=1, heads=4, context=512)
    grid = [(n, m) for n in (8, 16, 32, 64) for m in (8, 24, 72, 128)]
    names = ("scores", "weighted values", "cross scores", "cross values")
    y = torch.tensor(
        [
            [
                float(
                    sum(
                        row.forward
                        for row in cost(spec, phase="reading", length=n, source=m).operations
                        if row.name in names
                    )
                )
            ]
            for n, m in grid
        ],
        dtype=torch.float64,
    )
    terms: dict[str, Callable[[int, int], tuple[int, ...]]] = {
        "O(n)+O(m)": lambda n, m: (n, m),
        "O(n)+O(m)+O(nm)": lambda n, m: (n, m, n * m),
        "O(n²)+O(m²)+O(nm)": lambda n, m: (n * n, m * m, n * m),
        "O(n²)+O(m²)": lambda n, m: (n * n, m * m),
    }
    found = {}
    for name, make in terms.items():
        x = torch.tensor([make(n, m) for n, m in grid], dtype=torch.float64)
        miss = float((x @ torch.linalg.lstsq(x, y).solution - y).abs().max() / y.max())
        found[name] = claim("fits", miss < 1e-9, f"largest miss {100 * miss:.1f} % over {len(grid)} sizes")
    return found
