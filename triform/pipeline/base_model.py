"""The model a run begins with: a new one with a tokenizer trained on the data, or one that already knows the language.

Owns which family, tokenizer and special tokens suit a task, and which numbers of an older model are kept where its head
is not the task's. Refuses to know how a run goes.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, get_args

import torch

from triform.core.forms import Form as Network
from triform.core.initial_weights import build
from triform.data.rows import Row
from triform.errors import TriformError, UnknownName
from triform.families import FAMILIES, FORM_FAMILY, SMALL, sized
from triform.generation_defaults import Generation
from triform.model import Model
from triform.spec import Form, ModelSpec
from triform.tasks.task import Task
from triform.text.tokenizer import Tokenizer
from triform.text.train_tokenizer import Kind, train_tokenizer
from triform.train.run_config import Config
from triform.weights import model_folder, model_store
from triform.weights.verify_folder import described

# An encoder frames its texts ([CLS] … [SEP]) and masks; bytes spell everything, so nothing written is ever unknown.
KINDS: dict[Form, Kind] = {"encoder": "wordpiece", "decoder": "bpe", "encoder-decoder": "bpe"}
CHARACTERS = 50_000_000  # of text that a tokenizer is trained on at most: more would not change it


def form_of(task: Task[Any, Any, Any], config: Config) -> Form:
    """The form of the model it begins with, or of the family that is asked for, or the task's first."""
    if config.base is not None:
        return known_form(task, config.base)
    if config.family is None:
        return task.forms[0]
    if config.family not in FAMILIES:
        raise UnknownName("family", config.family, FAMILIES)
    if config.size not in SMALL:
        raise UnknownName("size", config.size, SMALL)
    form = sized(config.family, config.size).form
    if form not in task.forms:
        fitting = sorted(family for family in FAMILIES if sized(family, config.size).form in task.forms)
        raise TriformError(f"{config.family} is the form {form!r}; to {task.name}, use one of {', '.join(fitting)}")
    return form


class Begun(NamedTuple):
    """`new_head`: on a known model, so that something may be fitted before the first step."""

    model: Model
    new_head: bool


def begun(task: Task[Any, Any, Any], rows: Sequence[Row], *, config: Config) -> Begun:
    """With the head, the labels and the memo of the task; its numbers follow from the config and the rows."""
    base = fresh(task, rows, config=config) if config.base is None else known(task, config.base)
    labels = task.labels(rows)
    spec = task.spec(base.spec, labels=labels)
    same_head = spec == base.spec and labels == base.labels
    network = base.network if same_head else with_head(spec, base, seed=config.seed)
    memo = {"task": task.name} | task.memo(rows) | ({} if config.base is None else {"base": config.base})
    model = base.replace(spec=spec, network=network, labels=labels, memo=memo, left_aside=())
    new_head = config.base is not None and not same_head
    return Begun(task.prepare_head(model, base=base, seed=config.seed) if new_head else model, new_head)


def started(task: Task[Any, Any, Any], begun: Begun, rows: Sequence[Row]) -> Model:
    """A copy of it that is about to learn from these rows."""
    model = begun.model.replace(network=copy.deepcopy(begun.model.network))
    if begun.new_head and rows:
        task.fit_head(rows, model=model)
    return model


# --- a new one ------------------------------------------------------------------------------------------------------


def fresh(task: Task[Any, Any, Any], rows: Sequence[Row], *, config: Config) -> Model:
    form = form_of(task, config)
    tokenizer = tokenizer_for(form, rows, kind=config.tokenizer or KINDS[form], vocab=config.vocab)
    asked = {name: getattr(config, name) for name in ("width", "layers", "heads", "context")}
    changes = {name: value for name, value in asked.items() if value is not None}
    spec = sized(config.family or FORM_FAMILY[form], config.size, vocab=tokenizer.vocab, **changes)
    return Model(
        spec=spec,
        network=build(spec, seed=config.seed),
        tokenizer=tokenizer,
        generation=generation_of(tokenizer, form),
    )


def tokenizer_for(form: Form, rows: Sequence[Row], *, kind: Kind, vocab: int) -> Tokenizer:
    if kind not in get_args(Kind):
        raise UnknownName("kind of tokenizer", kind, get_args(Kind))
    special = None
    if form == "encoder" and kind != "wordpiece":
        special = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
    return train_tokenizer(_texts(rows), kind=kind, vocab=vocab, special=special, ends=form == "encoder-decoder")


def _texts(rows: Sequence[Row]) -> Iterator[str]:
    left = CHARACTERS
    for row in rows:
        for text in row.texts:
            left -= len(text)
            yield text
        if left < 0:
            return


def generation_of(tokenizer: Tokenizer, form: Form) -> Generation:
    """What is written ends with the end of a text; a target begins with filling, which no text holds."""
    first = tokenizer.pad if form == "encoder-decoder" else None
    return Generation(eos=tokenizer.eos, bos=tokenizer.bos, pad=tokenizer.pad, first=first)


# --- one that is known ----------------------------------------------------------------------------------------------


def known(task: Task[Any, Any, Any], name: str) -> Model:
    known_form(task, name)
    model = model_folder.read(model_store.find(name), dtype=torch.float32)
    if model.tokenizer is None:
        raise TriformError(f"the model {name} has no tokenizer, so it cannot learn to {task.name}; begin with another")
    return model


def known_form(task: Task[Any, Any, Any], name: str) -> Form:
    """From the folder's config and headers alone."""
    form = described(model_store.find(name)).form
    if form not in task.forms:
        raise TriformError(
            f"the model {name} is the form {form!r}; to {task.name}, begin with one of the form "
            f"{' or '.join(map(repr, task.forms))}"
        )
    return form


@torch.no_grad()
def with_head(spec: ModelSpec, base: Model, *, seed: int) -> Network:
    """A network of this spec with all numbers of the older one but those of its head, which are new."""
    network = build(spec, seed=seed, dtype=base.network.token.weight.dtype)
    older = base.network.state_dict()
    for path, numbers in network.state_dict().items():
        if not path.startswith("readout.") and path in older:
            numbers.copy_(older[path])
    return network
