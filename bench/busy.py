"""Two processes at once on the same cores, against one alone: what threads that wait for each other cost.

`.venv/bin/python -m bench.busy`: training, generating, embedding, serving; our default of a short spin at OpenMP's
barriers, and libgomp's own default. Fair sharing is a ratio of 2.
"""

import statistics
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.harness import Contender, limits

ROUNDS = 7
SPINS = {"ours": "1000", "libgomp's": "300000"}  # rounds at a barrier before a thread sleeps
Run = Callable[[], Any]


def training() -> Run:
    from bench.train import ours

    step = ours("10M", 4, 128)
    return lambda: [step() for _ in range(4)] and None


def _decoder() -> Any:
    import torch

    import triform

    torch.set_num_threads(2)
    return triform.build(triform.families.gpt2(width=384, layers=6, heads=6, vocab=8192, context=512))


def generating() -> Run:
    model = _decoder()
    return lambda: len(model.complete([[5, 6, 7, 8]], max_tokens=48, temperature=0.0, ignore_eos=True))


def embedding() -> Run:
    import torch

    import triform

    torch.set_num_threads(2)
    model = triform.build(triform.families.bert(width=384, layers=6, heads=12, vocab=8192, context=512))
    rows = [[1 + at % 8000] * (8 + 3 * at) for at in range(32)]
    return lambda: tuple(model.logits([row]).shape[-1] for row in rows) and None


def serving() -> Run:
    """Sixteen answers side by side, as the engine of a server writes them."""
    model = _decoder()
    prompts = [[5 + at, 6, 7, 8] for at in range(16)]
    return lambda: len(model.complete(prompts, max_tokens=16, temperature=0.0, ignore_eos=True))


def measure(work: str, spin: str) -> tuple[float, float]:
    """Seconds alone and in a pair, medians of interleaved rounds."""
    pair = [Contender(work, f"bench.busy:{work}", environment={"GOMP_SPINCOUNT": spin}) for _ in range(2)]
    alone: list[float] = []
    both: list[float] = []
    for _ in range(ROUNDS):
        pair[0].go()
        alone.append(pair[0].seconds.pop())
        for one in pair:
            one.begin()
        for one in pair:
            one.end()
            both.append(one.seconds.pop())
    for one in pair:
        one.close()
    return statistics.median(alone), statistics.median(both)


def main() -> None:
    table = Table("work", "spin", "alone", "two at once", "ratio", title="two processes on the same cores")
    for work in ("training", "generating", "embedding", "serving"):
        for name, spin in SPINS.items():
            alone, both = measure(work, spin)
            table.add_row(work, name, f"{alone * 1e3:,.0f} ms", f"{both * 1e3:,.0f} ms", f"{both / alone:.1f}×")
    console = Console(width=120)
    console.print(table)
    machine = limits()
    console.print(
        f"fp32 product {machine.flops / 1e9:.0f} GFLOP/s, reading {machine.bandwidth / 1e9:.1f} GB/s, same run"
    )


if __name__ == "__main__":
    main()
