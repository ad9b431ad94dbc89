"""A whole training step (batch, forward, loss, backward, clipping, AdamW) against transformers: same shapes, one run.

Both drop 0.1 of what is added to the residual stream and nothing of attention weights; both step with the fused AdamW.
`.venv/bin/python -m bench.train`
"""

from collections.abc import Callable
from typing import Any

from bench.harness import Contender, Row, limits, race, report

ROUNDS = 9
Run = Callable[[], Any]

# vocabulary, width, layers, heads; the second has 10.0 million parameters
SHAPES = {
    "small": {"vocab": 50_257, "width": 768, "layers": 12, "heads": 12},
    "10M": {"vocab": 8192, "width": 256, "layers": 10, "heads": 8},
    "10M, large vocabulary": {"vocab": 50_257, "width": 256, "layers": 10, "heads": 8},
}


def ours(shape: str, rows: int, tokens: int) -> Run:
    import torch

    from triform.core.initial_weights import build_network
    from triform.families import gpt2
    from triform.train.examples import ExampleList, TokenExample
    from triform.train.loop import prepare_run
    from triform.train.run_config import Config
    from triform.train.token_objectives import NextToken

    torch.set_num_threads(2)
    spec = gpt2(**SHAPES[shape], context=tokens)
    ids = torch.randint(0, spec.vocab, (4 * rows, tokens + 1)).numpy()
    examples = ExampleList([TokenExample(row) for row in ids], lengths=[tokens] * len(ids))
    config = Config(steps=10**6, batch_tokens=rows * tokens)
    run = prepare_run(build_network(spec), objective=NextToken(), examples=examples, config=config)
    steps = run.sampler.iterate_steps()
    return lambda: run.step(next(steps))


def theirs(shape: str, rows: int, tokens: int) -> Run:
    import torch
    import transformers

    torch.set_num_threads(2)
    transformers.logging.set_verbosity_error()
    size = SHAPES[shape]
    config = transformers.GPT2Config(
        vocab_size=size["vocab"],
        n_embd=size["width"],
        n_layer=size["layers"],
        n_head=size["heads"],
        n_positions=tokens,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    model = transformers.GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    ids = torch.randint(0, size["vocab"], (rows, tokens))

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return run


# --- the race -------------------------------------------------------------------------------------------------------


def row(what: str, *, aim: float, memory_aim: float | None = None, rounds: int = ROUNDS, **settings: Any) -> Row:
    names = {"triform": "ours", "transformers": "theirs"}
    contenders = [Contender(name, f"bench.train:{run}", **settings) for name, run in names.items()]
    first, second = race(contenders, rounds=rounds)
    size, tokens = SHAPES[settings["shape"]], settings["rows"] * settings["tokens"]
    weights = 12 * size["layers"] * size["width"] ** 2 + size["vocab"] * size["width"]
    scores = 2 * size["layers"] * settings["tokens"] * size["width"]
    return Row(
        what,
        first,
        second,
        aim=aim,
        work=6.0 * tokens * (weights + scores),
        memory_matters=True,
        memory_aim=memory_aim,
        tokens=tokens,
    )


def main() -> None:
    rows = [
        row("GPT-2 small, 4 × 256", aim=1.3, shape="small", rows=4, tokens=256),
        row("10 M parameters, 16 × 256", aim=1.3, shape="10M", rows=16, tokens=256),
        row(
            "10 M and 50,257 tokens, 16 × 256",
            aim=1.0,
            memory_aim=0.5,
            rounds=3,
            shape="10M, large vocabulary",
            rows=16,
            tokens=256,
        ),
        row("GPT-2 small, 16 × 256", aim=1.0, memory_aim=0.5, rounds=2, shape="small", rows=16, tokens=256),
    ]
    report("train", rows, limits())


if __name__ == "__main__":
    main()
