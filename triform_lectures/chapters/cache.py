"""The cache: what it keeps, what it saves, how large it is. Part of the chapter on inference."""

import torch

from triform.charts import curve, lines
from triform.core.build import make_cache
from triform.costs.predict import cost
from triform.costs.workload import Phase
from triform.families import gpt2, llama, named
from triform.inspect.view import look
from triform.spec import ModelSpec
from triform_lectures import slides
from triform_lectures.lesson import CONDITION, MISTAKE, Evidence, claim, lesson, table, wrong_claim
from triform_lectures.random_models import decoder, decoder_network, ids, pair, random, same


@lesson(
    "2.12",
    title="A decoder with a cache",
    where=slides.HUFS,
    slide="ChatGPT is decoder-only; in inference keys and values are cached, and (QKᵀ)V is computed with the cache.",
)
def cached() -> Evidence:
    """Step by step with a cache, a decoder gives the same logits as reading the whole text again at each step, within
    rounding; and each step computes one position instead of all."""
    model = decoder()
    view = look(model, [3, 1, 4])
    steps = view.steps(5, k=3)
    network = decoder_network()
    cache = make_cache(model.spec, dtype=torch.float64)
    tokens = (3, 1, 4, 1, 5, 9)
    with torch.no_grad():
        whole = network(ids(*tokens))[0]
        each = torch.cat([network.head(network.decode(ids(token), cache))[0] for token in tokens])
    later = steps.steps[1:]
    return Evidence(
        claims=(
            claim("with the cache = without it", same(each, whole), "6 steps, equal within 1e-9"),
            claim("it is a decoder alone", list(model.spec.stacks) == ["decoder"], model.spec.form),
        ),
        facts=(
            claim(
                "a step computes one position and reads the others",
                all(len(s.computed) == 1 for s in later),
                ", ".join(f"{len(s.read)} read" for s in later),
            ),
        ),
        tables=(
            table(
                "Growth of the cache",
                ["step", "computed", "read from the cache"],
                [[i + 1, len(s.computed), len(s.read)] for i, s in enumerate(steps.steps)],
            ),
        ),
    )


@lesson(
    "4.27",
    title="What the cache saves",
    where=slides.JHU,
    slide="Decoding computes the same keys and values many times; with a KV-cache only k_new = W_k x[:, "
    ":-1] is computed.",
    expects=MISTAKE,
    mistakes=("E23",),
)
def saved() -> Evidence:
    """The new key belongs to the last token: x[:, −1], one row. The printed slice [:, :−1] is everything but the last
    token, which is exactly what the cache already has. Work for n tokens falls from the order of n² to the order of n
    (in the matrices)."""
    x, w = random(1, 6, 8, seed=1), random(8, 8, seed=2)
    keys = x @ w
    printed_slice, right = x[:, :-1] @ w, x[:, -1:] @ w
    spec = decoder().spec
    lengths = (8, 16, 32, 64)
    with_cache = [sum(cost(spec, phase="step", length=n).total.forward for n in range(1, most + 1)) for most in lengths]
    without = [sum(cost(spec, phase="prefill", length=n).total.forward for n in range(1, most + 1)) for most in lengths]
    phases: tuple[Phase, Phase] = ("step", "prefill")
    once, again = (
        [
            sum(cost(spec, phase=phase, length=n).row("feed-forward", stack="decoder").forward for n in range(1, m + 1))
            for m in lengths
        ]
        for phase in phases
    )
    return Evidence(
        claims=(
            claim(
                "keys and values are computed many times without a cache",
                without[-1] > 10 * with_cache[-1],
                f"64 tokens: {without[-1]:,} against {with_cache[-1]:,} FLOPs",
            ),
            wrong_claim(
                "k_new = W_k x[:, :−1]",
                printed_slice.shape == right.shape and same(printed_slice, keys[:, -1:]),
                f"{printed_slice.shape[1]} old keys instead of 1 new one",
            ),
        ),
        facts=(
            claim("k_new = W_k x[:, −1]", same(right, keys[:, -1:]), "the last row"),
            claim(
                "in the matrices: n with the cache, n(n + 1)/2 without",
                [a / once[0] for a in once] == [n / lengths[0] for n in lengths]
                and [b / a for a, b in zip(once, again, strict=True)] == [(n + 1) / 2 for n in lengths],
                f"feed-forward, n = {lengths[-1]}: {once[-1]:,} and {again[-1]:,} FLOPs",
            ),
        ),
        plots=(
            lines(
                "FLOPs to write n tokens (width 32, 2 layers)",
                "n",
                "FLOPs",
                [curve("with the cache", lengths, with_cache), curve("without", lengths, without)],
                log="xy",
            ),
        ),
    )


def count_cache_numbers(spec: ModelSpec, n: int, *, rows: int = 1) -> int:
    """Numbers in an allocated cache with a capacity of n positions."""
    return make_cache(spec, rows=rows, capacity=n, dtype=torch.float32).bytes // 4


@lesson(
    "4.28",
    title="2ndL",
    where=slides.JHU,
    slide="Quiz: how much memory does the KV-cache take, with width d, n positions and L layers? 2ndL.",
    expects=CONDITION,
)
def cache_size() -> Evidence:
    """Allocated and counted: 2 · n · d · L numbers, times the batch, times the bytes of a number. It holds where every
    query head has a key head; with shared key heads (Llama 3) it is 2 · n · h_kv · d_h · L, four times less, and an
    encoder-decoder keeps 2 · m · d · L more for its source."""
    spec = gpt2(vocab=40, width=64, layers=3, heads=4, context=128)
    n, d, layers = 32, 64, 3
    options = {"2nL": 2 * n * layers, "2dL": 2 * d * layers, "ndL": n * d * layers, "2ndL": 2 * n * d * layers}
    counted = count_cache_numbers(spec, n)
    shared = llama(vocab=40, width=64, layers=3, heads=4, kv_heads=1, context=128)
    grouped = count_cache_numbers(shared, n)
    two = pair().spec
    both = cost(two, phase="step", length=n, source=20, batch=2).memory
    return Evidence(
        claims=(
            claim(
                f"the cache has {slides.CACHE_ANSWER} numbers",
                options[slides.CACHE_ANSWER] == counted,
                f"{counted:,} allocated; {', '.join(f'{name} = {size:,}' for name, size in options.items())}",
                only_if="keys and values are not shared by heads",
                anyway=options[slides.CACHE_ANSWER] == grouped,
            ),
        ),
        facts=(
            claim("times the batch", count_cache_numbers(spec, n, rows=5) == 5 * counted, "5 rows"),
            claim("shared key heads: 2 · n · h_kv · d_h · L", grouped == 2 * n * 1 * 16 * layers, f"{grouped:,}"),
            claim(
                "an encoder-decoder adds 2 · m · d · L for the source",
                both.cross == 2 * 20 * 32 * 2 * 2 * 4,
                f"{both.cross:,} bytes for m = 20, 2 rows",
            ),
        ),
        tables=(
            table(
                "A cache of 1,024 positions, float16",
                ["model", "MB"],
                [
                    [name, f"{cost(named(name), phase='step', length=1024, dtype='float16').memory.cache / 1e6:,.1f}"]
                    for name in ("gpt2-small", "llama-2-7b", "llama-3-8b")
                ],
            ),
        ),
    )
