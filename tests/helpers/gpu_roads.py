"""Every road on a pretended GPU, in a process of its own; prints what went wrong on each as JSON.

python tests/helpers/gpu_roads.py [road …]
"""

import copy
import json
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pretended_gpu

pretended_gpu.install()

import torch  # noqa: E402
from tiny_models import EVERY  # noqa: E402
from tiny_runs import digest, loss_of, texts  # noqa: E402
from tiny_tasks import (  # noqa: E402
    LABELLED,
    PAIRS,
    QUESTIONS,
    SCORED,
    SEVERAL,
    TAGGED,
    begun,
    learned,
    there_and_back,
)  # fmt: skip

import triform  # noqa: E402
from triform.core import masks  # noqa: E402
from triform.core.initial_weights import build_network  # noqa: E402
from triform.data.rows import DocumentRow, ScoredPairRow  # noqa: E402
from triform.model import Model  # noqa: E402
from triform.precision import relative_error  # noqa: E402
from triform.spec import replace  # noqa: E402
from triform.tasks import encoder_batches, get_task  # noqa: E402
from triform.train.examples import ExamplePlace  # noqa: E402
from triform.train.loop import train  # noqa: E402
from triform.train.run_config import Config  # noqa: E402
from triform.train.token_objectives import NextToken  # noqa: E402

GPU = torch.device("gpu", 0)
ROADS: dict[str, Callable[[], object]] = {}


def road(make: Callable[[], object]) -> Callable[[], object]:
    ROADS[make.__name__] = make
    return make


def on_gpu(model: Model) -> Model:
    """A copy there."""
    return model.replace(network=copy.deepcopy(model.network).to(GPU))


def built(name: str) -> tuple[Model, Model]:
    """The same on the CPU and on the GPU."""
    return triform.build(EVERY[name], seed=3), triform.build(EVERY[name], seed=3, device="gpu")


def same(got: torch.Tensor, want: torch.Tensor, *, bound: float = 1e-5) -> None:
    assert got.device == GPU, got.device
    assert relative_error(got.cpu(), want) < bound


# --- forward --------------------------------------------------------------------------------------------------------

ROWS, KEEP = [[5, 6, 7, 8], [9, 10, 0, 0]], [[True] * 4, [True, True, False, False]]


def forward_of(name: str) -> Callable[[], None]:
    def go() -> None:
        here, there = built(name)
        target = {"target": ROWS, "target_keep": KEEP} if here.spec.form == "encoder-decoder" else {}
        same(there.logits(ROWS, keep=KEEP, **target), here.logits(ROWS, keep=KEEP, **target))

    return go


for family in EVERY:
    ROADS[f"forward of {family}"] = forward_of(family)


# --- generation -----------------------------------------------------------------------------------------------------

WRITERS = ("gpt2", "llama", "mistral", "alibi decoder", "t5", "vaswani", "marian")
PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12], [6]]


def generation_of(name: str, **settings: object) -> Callable[[], None]:
    def go() -> None:
        here, there = built(name)
        pair = here.spec.form == "encoder-decoder"
        first = {"start": 0} if pair else {}
        want, got = (model.complete(PROMPTS, max_tokens=5, **first, **settings) for model in (here, there))
        assert [(each.tokens, each.error) for each in got] == [(each.tokens, each.error) for each in want]

    return go


for writer in WRITERS:
    ROADS[f"greedy of {writer}"] = generation_of(writer, temperature=0)
    ROADS[f"beams of {writer}"] = generation_of(writer, beams=3)
    ROADS[f"samples of {writer}"] = generation_of(writer, temperature=1.0, top_k=9, top_p=0.9, seed=1)


@road
def prompt_lookup() -> None:
    generation_of("llama", temperature=0, lookup=True)()


@road
def logprobs() -> None:
    generation_of("gpt2", temperature=0, logprobs=3)()


@road
def a_draft_model() -> None:
    models = begun(get_task("complete"), DOCUMENTS, form="decoder")
    small = models.replace(
        spec=replace(models.spec, decoder=replace(models.spec.decoder, layers=1)),
        network=build_network(replace(models.spec, decoder=replace(models.spec.decoder, layers=1)), seed=2),
    )
    want, got = (
        large.with_draft(draft).complete(["Jack", "Rose went"], max_tokens=5, temperature=0)
        for large, draft in ((models, small), (on_gpu(models), on_gpu(small)))
    )
    assert [answer.tokens for answer in got] == [answer.tokens for answer in want]


# --- tasks ----------------------------------------------------------------------------------------------------------

NUMBER = re.compile(r"-?\d+\.\d+(e-\d+)?")  # the last digits are those of a device
DOCUMENTS = [DocumentRow(row.text) for row in LABELLED]
RANKED = [ScoredPairRow(row.first, row.second, float(row.score > 3)) for row in SCORED]


def trained_task(name: str, rows: list, form: str = "encoder", **changes: object) -> Callable[[], None]:
    """Learn there, evaluate there, save, load here and there, and give the same answers."""

    def go() -> None:
        task = get_task(name)
        model = on_gpu(begun(task, rows, form=form))
        done = learned(task, rows, model=model, steps=2, **changes)
        assert done.device == GPU
        task.evaluate(rows[:6], model=done)
        with tempfile.TemporaryDirectory() as folder:
            here = there_and_back(done, Path(folder) / "model")
            there = triform.load(Path(folder) / "model", device="gpu", dtype="float32")
            for row in rows[:2]:
                want, got = (NUMBER.sub("#", repr(task.try_sample(row, model=model)[1])) for model in (here, there))
                assert got == want

    return go


for task_name, task_rows in {
    "classify": LABELLED, "tag": TAGGED, "answer": QUESTIONS, "embed": SCORED, "rerank": RANKED,
}.items():  # fmt: skip
    ROADS[task_name] = trained_task(task_name, task_rows)
ROADS["classify with several labels"] = trained_task("classify", SEVERAL)
ROADS["complete"] = trained_task("complete", DOCUMENTS, form="decoder")
ROADS["translate"] = trained_task("translate", PAIRS, form="encoder-decoder")
ROADS["fill"] = trained_task("fill", DOCUMENTS)
ROADS["answer in words"] = trained_task("answer", QUESTIONS, form="encoder-decoder")
ROADS["muon and a moving average"] = trained_task("classify", LABELLED, optimizer="muon", ema=0.9)
ROADS["lora"] = trained_task("classify", LABELLED, lora=("*.qkv",))
ROADS["recomputed blocks"] = trained_task("tag", TAGGED, recompute=True)
ROADS["dropout in passes"] = trained_task("complete", DOCUMENTS, form="decoder", dropout=0.2, accumulate=2)


def shared_out(name: str, rows: list) -> Callable[[], None]:
    """An evaluation, whose results of other processes come over the CPU."""

    def go() -> None:
        def share(compute: Callable, batches: list) -> list:
            return [[each.cpu() for each in found] for found in map(compute, batches)]

        with mock.patch.object(encoder_batches, "map_batches", share):
            task = get_task(name)
            task.evaluate(rows[:4], model=on_gpu(begun(task, rows)))

    return go


for task_name, task_rows in {"classify": LABELLED, "tag": TAGGED, "embed": SCORED, "fill": DOCUMENTS}.items():
    ROADS[f"shared {task_name}"] = shared_out(task_name, task_rows)


@road
def score() -> None:
    model = begun(get_task("complete"), DOCUMENTS, form="decoder")
    want, got = (each.score(["Jack loves Rome."]) for each in (model, on_gpu(model)))
    assert abs(want[0].logprob - got[0].logprob) < 1e-3


@road
def zero_shot_and_decide() -> None:
    model = on_gpu(begun(get_task("complete"), DOCUMENTS, form="decoder"))
    model.decide(["Jack loves Rome."], question="Is it good?", choices=["yes", "no"])


# --- training -------------------------------------------------------------------------------------------------------


@road
def checkpoints() -> None:
    """A run that loses its last checkpoint and is resumed there ends as before."""
    config = Config(steps=6, seed=5, batch_tokens=96, save_every=2, keep=9, ema=0.9, learning_rate=2e-3)
    rows = texts(*range(3, 30))
    with tempfile.TemporaryDirectory() as folder:
        ends = []
        for resume in (False, True):
            network = triform.build(EVERY["gpt2"], device="gpu").network
            train(network, objective=NextToken(), examples=rows, config=config, folder=folder, resume=resume)
            ends.append(digest(copy.deepcopy(network).cpu()))
            for last in Path(folder).rglob("*0006"):
                shutil.rmtree(last)
        assert ends[0] == ends[1]


@road
def gradients() -> None:
    here, there = built("llama")
    examples = [texts(9, 7).at(ExamplePlace(0, 0, row)) for row in range(2)]
    _, _, want = loss_of(NextToken(), here.network, examples)
    total = NextToken()
    batch = total.batch(examples, places=[ExamplePlace(1, 0, row) for row in range(2)], device=GPU)
    total.loss(there.network, batch).total.backward()
    for path, p in there.network.named_parameters():
        same(p.grad, want[path], bound=1e-4)


# --- looking inside -------------------------------------------------------------------------------------------------

CHANGES = ("off L1H2", "off decoder.blocks.0.feedforward", "scale decoder.blocks.1@-1 0.5", "mean L0H1")


def change_of(change: str) -> Callable[[], None]:
    def go() -> None:
        here, there = (model.patched(change) for model in built("gpt2"))
        same(there.logits([[5, 6, 7, 8]]), here.logits([[5, 6, 7, 8]]))

    return go


for each in CHANGES[:3]:
    ROADS[f"change: {each}"] = change_of(each)


@road
def activations() -> None:
    _, there = built("gpt2")
    there.activations([[5, 6, 7], [8, 9]], "decoder.blocks.1", position="mean")


@road
def sweep() -> None:
    _, there = built("gpt2")
    there.sweep([[5, 6, 7, 8]], over="heads")


def halves_of(name: str) -> Callable[[], None]:
    """As a GPU usually computes: 16 bits, which the files have, unless asked otherwise."""

    def go() -> None:
        with tempfile.TemporaryDirectory() as folder:
            triform.build(EVERY[name], seed=3).save(Path(folder) / "model", dtype="bfloat16")
            there = triform.load(Path(folder) / "model", device="auto")
            assert (there.device, there.dtype) == (GPU, torch.bfloat16)
            here = triform.load(Path(folder) / "model")
            same(there.logits(ROWS, keep=KEEP).float(), here.logits(ROWS, keep=KEEP), bound=0.1)

    return go


for family in ("llama", "bert"):
    ROADS[f"halves of {family}"] = halves_of(family)


@road
def look() -> None:
    model = on_gpu(begun(get_task("complete"), DOCUMENTS, form="decoder"))
    model.look("Jack loves Rome.")


@road
def planted() -> None:
    """The negative control: a mask made on the CPU."""
    masks.count_up = lambda length, device: torch.arange(length)
    _, there = built("gpt2")
    there.logits(ROWS, keep=KEEP)


def main(names: list[str]) -> None:
    found = {}
    for name in names or ROADS:
        try:
            ROADS[name]()
            found[name] = ""
        except Exception as error:
            frames = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)
                      if "/triform/" in f.filename or "gpu_roads" in f.filename]  # fmt: skip
            found[name] = f"{type(error).__name__}: {str(error)[:300]} at {' '.join(frames[-4:])}"
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
