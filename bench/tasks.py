"""Whole tasks, from texts to answers on disk, against sentence-transformers and transformers: same weights and threads.

Embedding: 5,000 texts of unequal length through MiniLM (`triform pull minilm`). Translating: 1,000 sentences with 4
beams, through a random Marian of the released shape that never ends a sentence early, or through `--model FOLDER`, a
Marian, BART or T5 that does. `python -m bench tasks`, about 15 minutes; `python -m bench.tasks --try` runs everything
with a few texts and keeps nothing.
"""

import argparse
import json
import math
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from bench.harness import Contender, Row, limits, race, report

THREADS = 2
SEED = 11
TOGETHER = 32  # texts of a batch: the default of sentence-transformers, and what its users take for translating
BEAMS = 4
LEAST, USUAL, MOST = 5, 24, 256  # tokens of a text; MiniLM reads 256
APART = 1e-4  # the most that two vectors may differ anywhere
Run = Callable[[], Any]


class Sizes(NamedTuple):
    """How many of everything, `rounds` times each."""

    rounds: int
    texts: int
    sentences: int
    new: int  # tokens that every translation has; of a model that ends its sentences, the most


FULL = Sizes(rounds=2, texts=5_000, sentences=1_000, new=24)
TRY = Sizes(rounds=1, texts=60, sentences=40, new=4)


# --- what is read ---------------------------------------------------------------------------------------------------


def english(first: int = SEED) -> Iterator[str]:
    """Sentences of the little world, without end, from this seed on."""
    import little_world

    for seed in range(first, 10**6):
        yield from (one.english for one in little_world.sentences(split="test", seed=seed, count=1_000))


def mixed(folder: Path, count: int, *, sentences: Sequence[str] | None = None) -> tuple[list[str], list[int]]:
    """Texts and their tokens: sentences (the little world's if none are given) joined up to a length drawn from
    e^normal(log 24, 0.9), within 5 and 256."""
    from triform.text.tokenizer import Tokenizer

    tokenizer, chance = Tokenizer.read(folder), random.Random(SEED)
    more = english() if sentences is None else cycle(sentences)
    texts, lengths = [], []
    for _ in range(count):
        wanted = min(MOST, max(LEAST, chance.lognormvariate(math.log(USUAL), 0.9)))
        text, size = "", 0
        while not text or size < wanted:
            longer = f"{text} {next(more)}".strip()
            tokens = len(tokenizer.encode(longer).ids)
            if tokens > MOST:
                break
            text, size = longer, tokens
        texts.append(text)
        lengths.append(size)
    return texts, lengths


def told(lengths: list[int]) -> str:
    quarters = "/".join(f"{at:.0f}" for at in statistics.quantiles(lengths, n=4))
    return f"{min(lengths)}–{max(lengths)} tokens, quarters {quarters}, mean {statistics.mean(lengths):.0f}"


# --- embedding ------------------------------------------------------------------------------------------------------


def ours_embed(folder: str, texts: str, to: str) -> Run:
    import numpy as np
    import torch

    import triform

    torch.set_num_threads(THREADS)
    model, read = triform.load(folder), json.loads(Path(texts).read_text())
    return lambda: np.save(to, model.embed(read).numpy())


def theirs_embed(folder: str, texts: str, to: str) -> Run:
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(THREADS)
    model, read = SentenceTransformer(folder, device="cpu"), json.loads(Path(texts).read_text())
    return lambda: np.save(to, model.encode(read, batch_size=TOGETHER, show_progress_bar=False))


def embedding(scratch: Path, sizes: Sizes) -> Row:
    import numpy as np

    from triform.errors import TriformError
    from triform.weights import model_store

    try:
        folder = model_store.find_model("minilm")
    except TriformError:
        raise SystemExit("MiniLM is not on this machine; get it with `triform pull minilm`") from None
    texts, lengths = mixed(folder, sizes.texts)
    (scratch / "texts.json").write_text(json.dumps(texts))
    same = {"folder": str(folder), "texts": str(scratch / "texts.json")}
    racers = [
        Contender("triform", "bench.tasks:ours_embed", to=str(scratch / "ours.npy"), **same),
        Contender("sentence-transformers", "bench.tasks:theirs_embed", to=str(scratch / "theirs.npy"), **same),
    ]
    apart = float(np.abs(np.load(scratch / "ours.npy") - np.load(scratch / "theirs.npy")).max())
    if not apart <= APART:
        raise SystemExit(f"the vectors differ by {apart:.1e}, more than {APART:.0e}: not the same model")
    ours, peer = race(racers, rounds=sizes.rounds)
    beside = f"{told(lengths)}; |Δ| ≤ {apart:.0e}"
    return Row(f"MiniLM, {len(texts):,} texts", ours, peer, aim=2.0, tokens=sum(lengths), beside=beside)


# --- translating ----------------------------------------------------------------------------------------------------


def random_marian(to: Path) -> None:
    """The released shape, 6 + 6 layers of width 512, with a tokenizer that spells the little world in few tokens."""
    import little_world
    import triform
    from triform.families import marian
    from triform.pipeline.base_model import make_generation_defaults
    from triform.text.train_tokenizer import train_tokenizer

    known = list(little_world.sentences(split="train", seed=SEED, count=5_000))
    words = (text for one in known for text in (one.english, one.german))
    tokenizer = train_tokenizer(words, kind="bpe", vocab=16_384, ends=True)
    model = triform.build(marian(vocab=16_384), seed=SEED)
    generation = make_generation_defaults(tokenizer, "encoder-decoder")
    model = model.replace(tokenizer=tokenizer, generation=generation, memo={"task": "translate"})
    model.save(to)


def ours_translate(folder: str, texts: str, to: str, new: int, ends: bool) -> Run:
    import torch

    import triform

    torch.set_num_threads(THREADS)
    model, read = triform.load(folder), json.loads(Path(texts).read_text())
    search = {"beams": BEAMS, "max_tokens": new, "length_penalty": 1.0, "early_stopping": False, "ignore_eos": not ends}

    def run() -> None:
        Path(to).write_text(json.dumps([one.text for one in model.translate(read, **search)]))

    return run


def theirs_translate(folder: str, texts: str, to: str, new: int, ends: bool) -> Run:
    import torch
    import transformers as hf

    torch.set_num_threads(THREADS)
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    model, tokenizer = hf.AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), hf.AutoTokenizer.from_pretrained(folder)
    read = json.loads(Path(texts).read_text())
    if not ends:
        model.generation_config.eos_token_id = None
    search = {"num_beams": BEAMS, "max_new_tokens": new, "length_penalty": 1.0, "early_stopping": False}

    @torch.inference_mode()
    def run() -> None:
        written: list[str] = []
        for at in range(0, len(read), TOGETHER):
            batch = tokenizer(read[at : at + TOGETHER], padding=True, return_tensors="pt")
            asked = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
            out = model.generate(**asked, do_sample=False, **search)
            written += tokenizer.batch_decode(out, skip_special_tokens=True)
        Path(to).write_text(json.dumps([text.strip() for text in written]))

    return run


def translating(scratch: Path, sizes: Sizes, *, model: str | None, data: str | None) -> Row:
    folder = Path(model) if model else scratch / "marian"
    if model is None:
        random_marian(folder)
    lines = Path(data).read_text(encoding="utf-8").splitlines() if data else english()
    texts = [text for text, _ in zip(lines, range(sizes.sentences), strict=False)]
    (scratch / "sentences.json").write_text(json.dumps(texts))
    new = 128 if model else sizes.new
    same = {"folder": str(folder), "texts": str(scratch / "sentences.json"), "new": new, "ends": model is not None}
    racers = [
        Contender("triform", "bench.tasks:ours_translate", to=str(scratch / "ours.json"), **same),
        Contender("transformers", "bench.tasks:theirs_translate", to=str(scratch / "theirs.json"), **same),
    ]
    mine, its = (json.loads((scratch / f"{who}.json").read_text()) for who in ("ours", "theirs"))
    alike = sum(one == other for one, other in zip(mine, its, strict=True)) / len(mine)
    ours, peer = race(racers, rounds=sizes.rounds)
    what = f"{folder.name if model else 'Marian base'}, {len(texts):,} sentences, beam {BEAMS}"
    beside = f"{alike:.1%} of the translations are the same"
    return Row(what, ours, peer, aim=2.0, tokens=0 if model else new * len(texts), beside=beside)


def main() -> None:
    asking = argparse.ArgumentParser(prog="python -m bench.tasks", description=__doc__)
    asking.add_argument("--try", dest="trying", action="store_true", help="a few texts; nothing is kept")
    asking.add_argument("--model", help="the folder of a trained model that transformers reads too")
    asking.add_argument("--data", help="sentences to translate, one a line; else the little world's")
    asked, _ = asking.parse_known_args()
    sizes = TRY if asked.trying else FULL
    with tempfile.TemporaryDirectory() as scratch:
        rows = [
            embedding(Path(scratch), sizes),
            translating(Path(scratch), sizes, model=asked.model, data=asked.data),
        ]
    report("tasks", rows, limits(), keep=not asked.trying)


if __name__ == "__main__":
    main()
