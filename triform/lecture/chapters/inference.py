"""Inference and the cache: from vectors to words, one token after another."""

import torch

from triform.core.build import cache_for
from triform.families import gpt2, llama, named
from triform.generate.api import complete
from triform.lecture import slides, trained
from triform.lecture.chapters.similarity import cosines_of, vectors
from triform.lecture.lesson import CONDITION, MISTAKE, Chapter, Evidence, claim, lesson, near, slip, table
from triform.lecture.plots import bars, curve, lines
from triform.lecture.real import standing
from triform.lecture.untrained import decoder, hidden, ids, pair, random, same, writer
from triform.observe.cost import cost
from triform.observe.view import look
from triform.spec import ModelSpec


@lesson(
    "1.11",
    title="A score for every word",
    where=slides.LECTURE_10,
    slide="A linear layer brings the output to the size of the vocabulary; softmax makes probabilities of "
    "the next word.",
)
def to_words() -> Evidence:
    """As many scores as there are words, at every position; softmax makes them a distribution that sums to 1."""
    model = decoder()
    with torch.no_grad():
        logits = model.network(ids(3, 1, 4))
    p = logits.softmax(-1)
    return Evidence(
        claims=(
            claim(
                "one score for each word of the vocabulary",
                logits.shape[-1] == model.spec.vocab,
                f"{tuple(logits.shape)}: 3 positions × {model.spec.vocab} words",
            ),
            claim(
                "softmax: probabilities",
                bool((p > 0).all()) and same(p.sum(-1), torch.ones(1, 3, dtype=torch.float64)),
                "each position sums to 1",
            ),
        ),
    )


@lesson(
    "4.14",
    title="Tied embeddings, and what a logit is",
    where=slides.JHU,
    slide="Logits = x W_E with the token embedding W_E in R^(V×d); softmax of them; a picture calls its "
    "column 'output token probabilities (logits)'; then sample.",
    expects=MISTAKE,
    mistakes=("E18",),
)
def logits() -> Evidence:
    """x is 1×d and W_E is V×d, so the product is x W_Eᵀ. And logits are not probabilities: they may be negative and sum
    to anything; the slide's own column sums to 1.37. In a tied model the matrix that reads words in is the very tensor
    that scores them at the end."""
    model = decoder()
    x, table_of = random(1, 32, seed=1), model.network.token.weight.detach()
    try:
        x @ table_of
        fits = True
    except RuntimeError:
        fits = False
    with torch.no_grad():
        x_end = hidden(model, 3, 1, 4)
        scores = model.network.head(x_end)
    column = (0.19850038, 0.7089803, 0.46333563)
    tied = [path for path, _ in model.network.named_parameters() if path.startswith(("token", "readout"))]
    p = scores[-1].softmax(-1)
    order = p.sort(descending=True).values
    return Evidence(
        claims=(
            slip("x W_E with W_E in R^(V×d)", fits, "1×32 times 40×32 does not fit"),
            slip(
                "the logits are probabilities",
                near(sum(column), 1.0, 0.01),
                f"the three printed ones alone sum to {sum(column):.2f}",
            ),
        ),
        facts=(
            claim("x W_Eᵀ gives the logits", same(x_end @ table_of.T, scores), "equal within 1e-9"),
            claim("tied: one tensor, not two", tied == ["token.weight"], ", ".join(tied)),
            claim("logits may be negative", bool((scores < 0).any()), f"{int((scores < 0).sum())} of {scores.numel()}"),
            claim(
                "temperature keeps the order of words",
                (scores[-1] / 0.5).argsort().equal(scores[-1].argsort()),
                "0.5 and 1",
            ),
        ),
        tables=(
            table(
                "Ways to pick a token",
                ["way", "what it does"],
                [
                    ["greedy", "the likeliest"],
                    ["temperature T", "softmax(logits / T), then draw"],
                    ["top-k", "only the k likeliest"],
                    ["top-p", f"the fewest that hold p: {int((order.cumsum(0) < 0.9).sum()) + 1} of 40 hold 0.9 here"],
                ],
            ),
        ),
    )


@lesson(
    "4.16",
    title="One token, one pass",
    where=slides.JHU,
    slide="Each token is a forward pass; its output is fed back, until the end of the text or until we get "
    "tired; the probabilities are revised at each step.",
    kind="trained",
)
def token_by_token() -> Evidence:
    """Our little decoder writes on from 'The fat'. Each step is one pass, what it writes becomes its input, and the
    likeliest words change with every word added. It stops at </s>, or after as many tokens as it was allowed."""
    model = trained.little("decoder")
    own = trained.world().tokenizer
    begin = [trained.end_of(own), *own.encode("The fat", special=False).ids]
    view = look(model, begin)
    steps = view.steps(10, k=3)
    rows = [
        [
            "".join(f"{w} " for w in steps.tokens[1 : len(begin) + i]),
            "  ".join(
                f"{w.strip()} {p:.2f}" for w, p in zip(step.next.axes[0].labels, step.next.values.tolist(), strict=True)
            ),
        ]
        for i, step in enumerate(steps.steps)
    ]
    (tired,) = complete(model, [begin], max_tokens=2, temperature=0.0)
    (ended,) = complete(model, [begin], max_tokens=40, temperature=0.0)
    firsts = {step.next.axes[0].labels[0] for step in steps.steps}
    return Evidence(
        claims=(
            claim(
                "each token is one forward pass, fed back",
                all(step.computed[-1] == len(begin) - 1 + i for i, step in enumerate(steps.steps)),
                f"{len(steps.steps)} tokens, {len(steps.steps)} passes",
            ),
            claim("the probabilities are revised at each step", len(firsts) > 2, f"{len(firsts)} different favourites"),
            claim("it ends at </s>", ended.finish == "eos", f"after {len(ended.tokens)} tokens: {ended.text}"),
            claim("or when we are tired", tired.finish == "length", f"after 2 tokens: {tired.finish}"),
        ),
        tables=(table("What might come next", ["text so far", "likeliest"], rows),),
    )


@lesson(
    "2.10",
    title="I want to buy a _",
    where=slides.HUFS,
    slide="Linear maps for keys and queries change which words look similar; the value matrix moves words "
    "to an embedding that is best for finding the next word: 'I want to buy a _' car, apple, phone.",
    kind="trained",
)
def wish() -> Evidence:
    """A linear map can bring two words together or apart: stretched along 'technology', apple and phone look alike,
    along 'fruitness' apple and orange. And for the next word: after 'I want to buy a', our decoder finds things one can
    buy many times likelier than words that fit no such gap (adjectives, which may come first, are likelier still)."""
    words = vectors(("Orange", "Phone", "Apple"))
    tech, fruit = (
        cosines_of(words @ torch.diag(torch.tensor(scale, dtype=torch.float64)))
        for scale in ((3.0, 1.0, 1.0), (1.0, 3.0, 1.0))
    )
    model = trained.little("decoder")
    own = trained.world().tokenizer

    def chances(text: str, candidates: tuple[str, ...]) -> dict[str, float]:
        view = look(model, [trained.end_of(own), *own.encode(text, special=False).ids])
        p = view.logits[0, -1].softmax(-1)
        return {word: float(p[own.encode(word, special=False).ids[0]]) for word in candidates}

    a = chances(slides.WISH, ("car", "phone", "sat", "of"))
    an = chances("I want to buy an", ("apple",))
    found = a | an
    real = standing("smollm2")
    rows = []
    if real is not None and real.tokenizer is not None:
        view = look(real, slides.WISH)
        rows = [
            [label.strip(), f"{p:.3f}"]
            for label, p in zip(view.next(8).axes[0].labels, view.next(8).values.tolist(), strict=True)
        ]
    return Evidence(
        claims=(
            claim(
                "one map makes apple like phone, another like orange",
                bool(tech[2, 1] > tech[2, 0] and fruit[2, 0] > fruit[2, 1]),
                f"cosine with phone {tech[2, 1]:.2f}, with orange {fruit[2, 0]:.2f}",
            ),
            claim(
                "car, apple and phone are words for this gap",
                min(found[word] for word in slides.WISHES) > 2 * max(found["sat"], found["of"]),
                ", ".join(f"{word} {p:.5f}" for word, p in found.items()),
            ),
        ),
        tables=tuple(table("SmolLM2-135M after the same words", ["word", "p"], rows) for _ in rows[:1]),
        plots=(bars("Next word after 'I want to buy a' ('an' for apple)", found),),
    )


@lesson(
    "2.12",
    title="A decoder with a cache",
    where=slides.HUFS,
    slide="ChatGPT is decoder-only; in inference keys and values are cached, and (QKᵀ)V is computed with the cache.",
)
def cached() -> Evidence:
    """Step by step with a cache, a decoder gives the very logits of reading the whole text again at each step, within
    rounding; and each step computes one position instead of all."""
    model = decoder()
    view = look(model, [3, 1, 4])
    steps = view.steps(5, k=3)
    network = writer()
    cache = cache_for(model.spec, dtype=torch.float64)
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
    return Evidence(
        claims=(
            claim(
                "keys and values are computed many times without a cache",
                without[-1] > 10 * with_cache[-1],
                f"64 tokens: {without[-1]:,} against {with_cache[-1]:,} FLOPs",
            ),
            slip(
                "k_new = W_k x[:, :−1]",
                printed_slice.shape == right.shape and same(printed_slice, keys[:, -1:]),
                f"{printed_slice.shape[1]} old keys instead of 1 new one",
            ),
        ),
        facts=(claim("k_new = W_k x[:, −1]", same(right, keys[:, -1:]), "the last row"),),
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


def cache_numbers(spec: ModelSpec, n: int, *, rows: int = 1) -> int:
    """Numbers in a real cache with room for n positions."""
    return cache_for(spec, rows=rows, capacity=n, dtype=torch.float32).bytes // 4


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
    counted = cache_numbers(spec, n)
    shared = llama(vocab=40, width=64, layers=3, heads=4, kv_heads=1, context=128)
    grouped = cache_numbers(shared, n)
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
            claim("times the batch", cache_numbers(spec, n, rows=5) == 5 * counted, "5 rows"),
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


CHAPTER = Chapter(
    name="inference",
    title="Inference and the cache",
    opening="A trained decoder gives, for every position, a distribution over the next token. Writing is a "
    "loop around that: "
    "pick a token, add it, ask again. The cache keeps the loop from doing everything again at each step.",
    lessons=(to_words, logits, token_by_token, wish, cached, saved, cache_size),
)
