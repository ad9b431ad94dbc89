"""Writing text, against transformers, CTranslate2 and llama.cpp: same weights, same lengths, same threads, one run.

`python -m bench generate`, about 9 minutes; `python -m bench.generate --try` runs every contender with tiny lengths and
keeps nothing.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from bench.formats import Made, made
from bench.harness import Claim, Contender, Limits, Result, Row, limits, race, report

ITS_WEIGHTS = 4 * (124_439_808 - 1024 * 768)  # bytes of GPT-2 small that a token reads: all but the position table


class Sizes(NamedTuple):
    """How long everything is; `rounds` each."""

    rounds: int
    prompt: int
    new: int
    copied: int  # tokens of the text that repeats itself
    growth: tuple[int, ...]


FULL = Sizes(rounds=5, prompt=16, new=64, copied=128, growth=(256, 512, 1024, 2048, 4096))
TRY = Sizes(rounds=1, prompt=16, new=4, copied=8, growth=(8, 16))


def contender(name: str, function: str, **settings: Any) -> Contender:
    return Contender(name, f"bench.generators:{function}", **settings)


def written(contenders: list[Contender], *, rounds: int, tokens: int) -> list[Result]:
    """A race in which everyone must write as many tokens."""
    results = race(contenders, rounds=rounds)
    for one in results:
        if one.note != tokens:
            raise SystemExit(f"{one.name} wrote {one.note} tokens, not {tokens}: the lengths are not equal")
    return results


# --- rows -----------------------------------------------------------------------------------------------------------


def one_row(shape: str, scratch: Path, sizes: Sizes) -> list[Row]:
    """Batch 1 against everyone; the error of each beside its speed, so that all are seen to run the same model."""
    at = made(shape, scratch)
    places = {
        "transformers": ("transformers", at.transformers),
        "CTranslate2 float32": ("ctranslate2", at.ctranslate2),
        "CTranslate2 int8": ("ctranslate2", at.ctranslate2_int8),
        **{f"llama.cpp {kind}": ("llama_cpp", path) for kind, path in at.gguf.items()},
    }
    same = {"rows": 1, "prompt": sizes.prompt, "new": sizes.new}
    racers = [contender("triform", "ours", folder=str(at.transformers), to=str(scratch / "triform.npy"), **same)]
    racers += [
        contender(name, function, folder=str(path), to=str(scratch / f"{name}.npy"), **same)
        for name, (function, path) in places.items()
    ]
    ours, *peers = written(racers, rounds=sizes.rounds, tokens=sizes.new)
    first = shape == "gpt2-small"
    return [
        Row(
            f"{shape}, batch 1",
            ours,
            peer,
            aim=1.3 if first and peer.name == "transformers" else None,
            moved=sizes.new * ITS_WEIGHTS if first and peer.name == "transformers" else 0.0,
            moved_aim=0.75,
            tokens=sizes.new,
            beside=error(scratch, peer.name) if peer.name != "transformers" else f"ours: {error(scratch, 'triform')}",
        )
        for peer in peers
    ]


def error(scratch: Path, name: str) -> str:
    """mean |Δ log p| of all next tokens against the float32 transformers model, and relative to their deviation."""
    import numpy as np

    true, found = (np.load(scratch / f"{one}.npy") for one in ("transformers", name))
    apart, spread = np.abs(true - found).mean(), np.abs(true - true.mean(-1, keepdims=True)).mean()
    return f"|Δ log p| {apart:.1e} ({apart / spread:.1g} of its spread)"


def against(
    what: str, at: Made, peers: dict[str, str], *, rounds: int, rows: int, aim: float, **settings: Any
) -> list[Row]:
    """Ours against transformers, with an aim, and others, without one."""
    folders = {"transformers": at.transformers}
    same = settings | {"rows": rows}
    racers = [contender("triform", "ours", folder=str(at.transformers), **same)]
    racers += [
        contender(name, function, folder=str(folders.get(name, at.ctranslate2)), **same)
        for name, function in peers.items()
    ]
    tokens = rows * settings["new"]
    ours, *others = written(racers, rounds=rounds, tokens=tokens)
    return [Row(what, ours, peer, aim=aim if peer.name == "transformers" else None, tokens=tokens) for peer in others]


def many_rows(scratch: Path, sizes: Sizes) -> list[Row]:
    peers = {"transformers": "transformers", "CTranslate2 float32": "ctranslate2"}
    at = made("gpt2-small", scratch)
    new = sizes.new // 2
    return against("gpt2-small, batch 8", at, peers, rounds=sizes.rounds, rows=8, aim=1.6, prompt=sizes.prompt, new=new)


def pairs(scratch: Path, sizes: Sizes) -> list[Row]:
    peers = {"transformers": "transformers", "CTranslate2 float32": "ctranslate2_pair"}
    same = {"rounds": sizes.rounds, "rows": 1, "prompt": 2 * sizes.prompt}
    t5, marian = made("t5-small", scratch), made("marian-base", scratch)
    return [
        *against("t5-small, batch 1", t5, peers, aim=1.5, new=sizes.new, **same),
        *against("marian-base, beam 4", marian, peers, aim=2.0, new=sizes.new // 2, beams=4, **same),
    ]


def arriving(scratch: Path, sizes: Sizes) -> Row:
    """16 requests that arrive at random within a second: in one engine, and one after another."""
    new = sizes.new // 4
    folder = str(made("gpt2-small", scratch).transformers)
    same = {"folder": folder, "requests": 16, "new": new, "within": 1.0}
    racers = [
        contender("triform", "ours_arriving", rows=16, **same),
        contender("one after another", "ours_arriving", rows=1, **same),
    ]
    ours, peer = written(racers, rounds=min(3, sizes.rounds), tokens=16 * new)
    return Row("16 requests at random", ours, peer, aim=3.0, tokens=16 * new)


def copying(scratch: Path, sizes: Sizes) -> Row:
    """A random model's greedy text repeats itself: what prompt lookup gains on it, with the same tokens."""
    folder = str(made("gpt2-small", scratch).transformers)
    same = {"folder": folder, "rows": 1, "prompt": sizes.prompt, "new": sizes.copied}
    racers = [contender("triform", "ours", lookup=True, **same), contender("without lookup", "ours", **same)]
    ours, peer = written(racers, rounds=sizes.rounds, tokens=sizes.copied)
    return Row("text that repeats itself, lookup", ours, peer, aim=1.5, tokens=sizes.copied)


def growth(sizes: Sizes) -> Claim:
    from triform.costs.time_growth import fit_exponent

    racers = [contender(str(n), "ours_growth", tokens=n) for n in sizes.growth]
    points = {one.name: one.median for one in race(racers, rounds=min(2, sizes.rounds))}
    exponent = fit_exponent([(float(n), seconds) for n, seconds in points.items()])
    told = " … ".join(f"{n}: {1000 * seconds:,.0f} ms" for n, seconds in points.items())
    return Claim(f"time to write n tokens grows as n^p ({told}), p", exponent, 1.2, points)


def run(sizes: Sizes) -> tuple[list[Row], list[Claim], Limits]:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        rows = [
            *one_row("gpt2-small", scratch, sizes),
            *many_rows(scratch, sizes),
            arriving(scratch, sizes),
            copying(scratch, sizes),
            *one_row("llama-small", scratch, sizes._replace(rounds=min(3, sizes.rounds))),
            *pairs(scratch, sizes),
        ]
    return rows, [growth(sizes)], limits()


def main() -> None:
    trying = "--try" in sys.argv
    rows, claims, machine = run(TRY if trying else FULL)
    report("generate", rows, machine, claims=claims, keep=not trying)


if __name__ == "__main__":
    main()
