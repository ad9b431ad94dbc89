"""Inference: from vectors to words, one token after another."""

from itertools import pairwise

import torch

from triform.charts import bars
from triform.generate.api import complete
from triform.inspect.view import look
from triform_lectures import slides, trained_models
from triform_lectures.assets import find_model
from triform_lectures.chapters.cache import cache_size, cached, saved
from triform_lectures.chapters.similarity import cosine_matrix, slide_vectors
from triform_lectures.lesson import MISTAKE, Chapter, Evidence, claim, lesson, near, table, wrong_claim
from triform_lectures.random_models import compare, decoder, hidden, ids, random, same


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
    tied = [path for path, _ in model.network.named_parameters() if path.startswith(("token", "readout"))]
    p = scores[-1].softmax(-1)
    order = p.sort(descending=True).values
    return Evidence(
        claims=(
            wrong_claim("x W_E with W_E in R^(V×d)", fits, "1×32 times 40×32 does not fit"),
            wrong_claim(
                "the logits are probabilities",
                near(sum(slides.LOGITS), 1.0, 0.01),
                f"the three printed ones alone sum to {sum(slides.LOGITS):.2f}",
            ),
        ),
        facts=(
            claim("x W_Eᵀ gives the logits", *compare(x_end @ table_of.T, scores)),
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
    """Our little decoder continues 'The fat'. Each step is one pass, its output becomes its input, and the
    probabilities change with every word added. It stops at </s>, or at the maximum number of tokens."""
    model = trained_models.load_little_model("decoder")
    own = trained_models.load_world().tokenizer
    begin = [trained_models.end_token(own), *own.encode("The fat", special=False).ids]
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
    nexts = [dict(zip(each.next.axes[0].labels, each.next.values.tolist(), strict=True)) for each in steps.steps]
    revised = sum(one != other for one, other in pairwise(nexts))
    return Evidence(
        claims=(
            claim(
                "each token is one forward pass, fed back",
                all(step.computed[-1] == len(begin) - 1 + i for i, step in enumerate(steps.steps)),
                f"{len(steps.steps)} tokens, {len(steps.steps)} passes",
            ),
            claim(
                "the probabilities are revised at each step",
                revised == len(nexts) - 1,
                f"in {revised} of {len(nexts) - 1} steps the three likeliest words or their probabilities change",
            ),
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
    words = slide_vectors(("Orange", "Phone", "Apple"))
    tech, fruit = (
        cosine_matrix(words @ torch.diag(torch.tensor(scale, dtype=torch.float64)))
        for scale in ((3.0, 1.0, 1.0), (1.0, 3.0, 1.0))
    )
    model = trained_models.load_little_model("decoder")
    own = trained_models.load_world().tokenizer

    def chances(text: str, candidates: tuple[str, ...]) -> dict[str, float]:
        view = look(model, [trained_models.end_token(own), *own.encode(text, special=False).ids])
        p = view.logits[0, -1].softmax(-1)
        return {word: float(p[own.encode(word, special=False).ids[0]]) for word in candidates}

    a = chances(slides.WISH, ("car", "phone", "sat", "of"))
    an = chances("I want to buy an", ("apple",))
    adjectives = chances(slides.WISH, ("small", "new"))
    found = a | an
    real = find_model("smollm2")
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
                min(found[word] for word in slides.WISHES) > 10 * max(found["sat"], found["of"]),
                ", ".join(f"{word} {p:.1e}" for word, p in found.items()) + " ('an' for apple)",
            ),
        ),
        facts=(
            claim(
                "an adjective is likelier still",
                min(adjectives.values()) > max(a.values()),
                ", ".join(f"{word} {p:.1e}" for word, p in adjectives.items()),
            ),
        ),
        tables=tuple(table("SmolLM2-135M after the same words", ["word", "p"], rows) for _ in rows[:1]),
        plots=(bars("Next word after 'I want to buy a' ('an' for apple)", found),),
    )


CHAPTER = Chapter(
    name="inference",
    title="Inference and the cache",
    opening="A trained decoder gives, for every position, a distribution over the next token. Decoding is a loop "
    "around that: pick a token, append it, run the model again. The KV cache avoids computing everything again at each "
    "step.",
    lessons=(to_words, logits, token_by_token, wish, cached, saved, cache_size),
)
