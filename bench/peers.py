"""Native kernels and weights in few bits, against llama.cpp and CTranslate2: same weights, lengths, threads, one run.

    python -m bench peers                        # everything: about 12 minutes
    python -m bench peers --only decode,prefill
    python -m bench peers --json > peers.json
    python -m bench peers --try                  # tiny lengths: does every contender run?

All models are random and made here. The fastest of several interleaved rounds counts: a core that other work takes for
a moment slows a round down, and nothing makes one faster. The machine's reading speed is measured in the same run.
OMP_NUM_THREADS chooses the threads of everyone (2 if unset).
"""

import argparse
import contextlib
import json
import operator
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.formats import Made, made
from bench.generate import contender, written
from bench.generators import THREADS
from bench.harness import Claim, Contender, Limits, Result, Row, limits, make_record, race, report, save

ITS_NUMBERS = {
    "llama-small": (84_934_656, 24_576_000),
    "gpt2-small": (84_934_656, 38_597_376),
}  # in blocks; in the head
BYTES = {"float32": (4, 4), "bfloat16": (2, 2), "q8": (34 / 32, 34 / 32), "q4": (20 / 32, 34 / 32)}  # of each of them
READING_AIMS = {"float32": 0.85, "q8": 0.75, "q4": 0.65}


class Sizes(NamedTuple):
    """How long everything is; `rounds` each."""

    rounds: int
    new: int
    prompt: int  # of a prefill
    past: int
    growth: tuple[int, ...]


FULL = Sizes(rounds=5, new=64, prompt=512, past=8_192, growth=(256, 512, 1024, 2048, 4096))
TRY = Sizes(rounds=1, new=4, prompt=32, past=64, growth=(8, 16))


class Pairing(NamedTuple):
    """A kind of our weights, the peers it is measured against, and the ratio that is wanted to the best of them."""

    ours: str
    peers: tuple[str, ...]
    aim: float | None


def make_places(at: Made) -> dict[str, tuple[str, Path]]:
    """The peers that read decoders: their function, and where their weights are."""
    return {
        "llama.cpp F32": ("llama_cpp", at.gguf["F32"]),
        "llama.cpp Q8_0": ("llama_cpp", at.gguf["Q8_0"]),
        "llama.cpp Q4_0": ("llama_cpp", at.gguf["Q4_0"]),
        "CTranslate2 float32": ("ctranslate2", at.ctranslate2),
        "CTranslate2 int8": ("ctranslate2", at.ctranslate2_int8),
    }


def race_decoders(
    at: Made, pairings: Sequence[Pairing], *, rounds: int, rows: int, keeps: Path | None = None, **sizes: int
) -> dict[str, Result]:
    """Everyone that some pairing names, in one race; log-probabilities into the folder `keeps`."""
    same: dict[str, Any] = {"rows": rows, **sizes}
    places, names = make_places(at), dict.fromkeys(peer for one in pairings for peer in one.peers)

    def start(name: str, function: str, folder: Path, **more: Any) -> Contender:
        kept = {} if keeps is None else {"to": str(keeps / f"{name}.npy")}
        return contender(name, function, folder=str(folder), **same, **kept, **more)

    kinds = dict.fromkeys(one.ours for one in pairings)
    racers = [start(kind, "ours", at.transformers, weights=kind) for kind in kinds]
    racers += [start(name, *places[name]) for name in names]
    return {one.name: one for one in written(racers, rounds=rounds, tokens=rows * sizes["new"])}


def make_rows(what: str, pairings: Sequence[Pairing], found: dict[str, Result], **more: Any) -> list[Row]:
    """A row per pairing: ours beside the fastest of its peers."""
    rows = []
    for one in pairings:
        best = min((found[peer] for peer in one.peers), key=lambda result: result.best)
        rows.append(Row(f"{what}, {one.ours}", found[one.ours], best, aim=one.aim, by_best=True, **more))
    return rows


# --- what is measured -------------------------------------------------------------------------------------------------

FLOATS = ("llama.cpp F32", "CTranslate2 float32")
EIGHTS = ("llama.cpp Q8_0", "CTranslate2 int8")
DECODE = (
    Pairing("float32", FLOATS, 1.2),
    Pairing("bfloat16", FLOATS, None),
    Pairing("q8", ("llama.cpp Q8_0",), 1.6),
    Pairing("q8", ("CTranslate2 int8",), None),
    Pairing("q4", ("llama.cpp Q4_0",), 1.7),
)
PREFILL = (Pairing("float32", FLOATS, 1.2), Pairing("q8", EIGHTS, 1.2), Pairing("q4", ("llama.cpp Q4_0",), None))
BATCH = (
    Pairing("float32", ("CTranslate2 float32",), None),
    Pairing("q8", ("CTranslate2 float32", "CTranslate2 int8"), 2.5),
)
PAIRS = ("float32", "q8")


def decode(scratch: Path, sizes: Sizes) -> list[Row]:
    """Batch 1, prompt 16: speed, share of the reading speed, and the divergence from float32 beside it."""
    rows = []
    for shape, numbers in ITS_NUMBERS.items():
        at, keeps = made(shape, scratch), scratch / shape
        same = {"rows": 1, "prompt": 16}
        asked = {"folder": str(at.transformers), "to": str(keeps / "transformers.npy"), "new": 1}
        contender("transformers", "transformers", **same, **asked).close()
        found = race_decoders(at, DECODE, rounds=sizes.rounds, new=sizes.new, keeps=keeps, **same)
        for row in make_rows(f"{shape}, batch 1", DECODE, found, tokens=sizes.new):
            kind = row.ours.name
            moved = sizes.new * sum(map(operator.mul, numbers, BYTES[kind]))
            beside = f"KL {measure_divergence(keeps, kind):.0e} / {measure_divergence(keeps, row.peer.name):.0e}"
            rows.append(row._replace(beside=beside, moved=moved, moved_aim=READING_AIMS.get(kind)))
    return rows


def measure_divergence(folder: Path, name: str) -> float:
    """KL of the next token's distribution from that of transformers in float32, mean over a few prompts."""
    import numpy as np

    true, found = (np.load(folder / f"{one}.npy").astype(float) for one in ("transformers", name))
    return float((np.exp(true) * (true - found)).sum(-1).mean())


def prefill(scratch: Path, sizes: Sizes) -> list[Row]:
    """A long prompt and one token."""
    found = race_decoders(
        made("llama-small", scratch), PREFILL, rounds=sizes.rounds, rows=1, prompt=sizes.prompt, new=1
    )
    return make_rows(f"llama-small, prompt of {sizes.prompt}", PREFILL, found)


def batch(scratch: Path, sizes: Sizes) -> list[Row]:
    """Eight texts side by side."""
    new = sizes.new // 2
    found = race_decoders(made("llama-small", scratch), BATCH, rounds=sizes.rounds, rows=8, prompt=16, new=new)
    return make_rows("llama-small, batch 8", BATCH, found, tokens=8 * new)


def pairs(scratch: Path, sizes: Sizes) -> list[Row]:
    """Encoder-decoders: T5 alone, Marian with four beams; ours in q8 against the best of CTranslate2."""
    t5: dict[str, Any] = {"rows": 1, "prompt": 32, "new": sizes.new}
    marian = t5 | {"new": sizes.new // 2, "beams": 4}
    rows = []
    for shape, aim, settings in (("t5-small", 1.5, t5), ("marian-base", 2.0, marian)):
        at = made(shape, scratch)
        racers = [contender(kind, "ours", folder=str(at.transformers), weights=kind, **settings) for kind in PAIRS]
        racers += [
            contender(f"CTranslate2 {kind}", "ctranslate2_pair", folder=str(at.ctranslate2), kind=kind, **settings)
            for kind in ("float32", "int8")
        ]
        found = {one.name: one for one in written(racers, rounds=sizes.rounds, tokens=settings["new"])}
        both = ("CTranslate2 float32", "CTranslate2 int8")
        pairings = [Pairing("float32", both[:1], None), Pairing("q8", both, aim)]
        what = f"{shape}, beam 4" if "beams" in settings else f"{shape}, batch 1"
        rows += make_rows(what, pairings, found, tokens=settings["new"])
    return rows


def past(scratch: Path, sizes: Sizes) -> list[Row]:
    """Writing after a long past; the prompt is read before the clock runs."""
    at, new = made("smollm2", scratch), sizes.new // 4
    same = {"new": new}
    ours = contender("q8", "ours_after_past", folder=str(at.transformers), past=sizes.past, weights="q8", **same)
    same |= {"rows": 1, "prompt": sizes.past, "keeps_prompt": True}
    peer = contender("llama.cpp Q8_0", "llama_cpp", folder=str(at.gguf["Q8_0"]), **same)
    found = {one.name: one for one in written([ours, peer], rounds=sizes.rounds, tokens=new)}
    what = f"SmolLM2's shape after {sizes.past:,} tokens"
    return make_rows(what, [Pairing("q8", ("llama.cpp Q8_0",), 1.0)], found, tokens=new)


def start(scratch: Path, sizes: Sizes) -> list[Row]:
    """From the start of a Python process to its first token; ours in a folder that was quantised before."""
    import triform

    at, folder = made("smollm2", scratch), scratch / "smollm2-q4"
    triform.load(at.transformers, weights="q4").save(folder)
    peers = {
        "transformers": ("transformers", at.transformers, 4.0),
        "llama.cpp Q4_0": ("llama_cpp", at.gguf["Q4_0"], 1.0),
    }
    racers = [contender("q4", "start_process", who="ours", folder=str(folder), weights="auto")]
    racers += [contender(name, "start_process", who=who, folder=str(place)) for name, (who, place, _) in peers.items()]
    found = {one.name: one for one in written(racers, rounds=sizes.rounds, tokens=1)}
    pairings = [Pairing("q4", (name,), aim) for name, (_, _, aim) in peers.items()]
    return make_rows("SmolLM2's shape, first token from the start", pairings, found)


def growth(sizes: Sizes) -> Claim:
    """The exponent of the time to write n tokens."""
    from triform.costs.time_growth import fit_exponent

    racers = [contender(str(count), "ours_growth", tokens=count) for count in sizes.growth]
    points = {one.name: one.best for one in race(racers, rounds=min(2, sizes.rounds))}
    exponent = fit_exponent([(float(count), seconds) for count, seconds in points.items()])
    told = " … ".join(f"{count}: {1000 * seconds:,.0f} ms" for count, seconds in points.items())
    return Claim(f"time to write n tokens grows as n^p ({told}), p", exponent, 1.1, points)


PARTS: dict[str, Callable[[Path, Sizes], list[Row]]] = {
    "decode": decode,
    "prefill": prefill,
    "batch": batch,
    "pairs": pairs,
    "past": past,
    "start": start,
}
GROWTH = "growth"


def run(sizes: Sizes, parts: Sequence[str]) -> tuple[list[Row], list[Claim], Limits]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for part in parts:
            if part != GROWTH:
                print(f"{time.strftime('%H:%M:%S')} {part} …", file=sys.stderr, flush=True)
                found = PARTS[part](Path(folder), sizes)
                rows += found
                for row in found:
                    print(f"  {row.what}: {row.ratio:.2f}× {row.peer.name}", file=sys.stderr, flush=True)
    return rows, [growth(sizes)] if GROWTH in parts else [], limits()


def main() -> None:
    every = (*PARTS, GROWTH)
    asking = argparse.ArgumentParser(
        prog="python -m bench peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asking.add_argument("--only", default=",".join(every), metavar="PART,…", help=f"of {', '.join(every)}")
    asking.add_argument("--json", action="store_true", help="print JSON; the table goes to standard error")
    asking.add_argument("--try", dest="trying", action="store_true", help="tiny lengths; nothing is kept")
    asked = asking.parse_args()
    parts = asked.only.split(",")
    if unknown := [part for part in parts if part not in every]:
        asking.error(f"--only: there is no part {', '.join(unknown)}; there are {', '.join(every)}")
    with contextlib.redirect_stdout(sys.stderr):
        rows, claims, machine = run(TRY if asked.trying else FULL, parts)
        title = f"peers, {THREADS} threads"
        report(title, rows, machine, claims=claims, keep=False)
    record = make_record(title, rows, machine, claims)
    if not asked.trying and len(parts) == len(every):
        save(record)
    if asked.json:
        print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
