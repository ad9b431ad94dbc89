"""The model that a run starts from: a new one with a tokenizer trained on the data, or a pretrained one.

Chooses family, tokenizer and special tokens for a task, and gives a pretrained model the head of the task.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, get_args

import torch

from triform.core.build import build_skeleton
from triform.core.forms import Form as Network
from triform.core.initial_weights import build_network
from triform.data.rows import DataRow
from triform.devices import find_device
from triform.errors import TriformError, UnknownName
from triform.families import FAMILIES, FORM_FAMILY, SMALL_SIZES, sized
from triform.generation_defaults import GenerationDefaults
from triform.model import Model
from triform.spec import Form, ModelSpec
from triform.tasks.task import Task
from triform.text.tokenizer import Tokenizer
from triform.text.train_tokenizer import TokenizerKind, train_tokenizer
from triform.train.optimizers import check_any_trained
from triform.train.prepare_network import check_machine, choose_trained
from triform.train.run_config import Config
from triform.weights import model_folder, model_store
from triform.weights.verify_folder import describe_folder

# WordPiece has the special tokens of an encoder; byte-level BPE has no unknown tokens.
TOKENIZERS: dict[Form, TokenizerKind] = {"encoder": "wordpiece", "decoder": "bpe", "encoder-decoder": "bpe"}
SOME_LABELS = ("a", "b")  # stand for those of the rows: the number of labels changes no path of a weight
MAX_CHARACTERS = 50_000_000  # of text to train a tokenizer on: more would not change it


def choose_form(task: Task[Any, Any, Any], config: Config) -> Form:
    """The form of the base model, or of the family, or the task's first."""
    if config.base is not None:
        return _base_form(task, config.base)
    if config.family is None:
        return task.forms[0]
    if config.family not in FAMILIES:
        raise UnknownName("family", config.family, FAMILIES)
    if config.size not in SMALL_SIZES:
        raise UnknownName("size", config.size, SMALL_SIZES)
    form = sized(config.family, config.size).form
    if form not in task.forms:
        fitting = sorted(family for family in FAMILIES if sized(family, config.size).form in task.forms)
        raise TriformError(f"{config.family} has the form {form!r}; to {task.name}, use one of {', '.join(fitting)}")
    return form


class BaseModel(NamedTuple):
    """`new_head`: a pretrained model got a new head, which may be fitted before the first step."""

    model: Model
    new_head: bool


def check_before_data(task: Task[Any, Any, Any], config: Config) -> Model | None:
    """What the config asks of a model, tried without any row, since rows may take minutes to read: its sizes, the
    weights to train, what the machine can do. Returns the pretrained model, which does not depend on the rows."""
    known = None if config.base is None else _read_base(task, config.base)
    spec = _size_new(task, config, vocab=config.vocab) if known is None else known.spec
    network = build_skeleton(task.spec(spec, labels=SOME_LABELS))
    check_machine(config, find_device(config.device))
    choose_trained(network, config)
    check_any_trained(network)
    return known


def make_base(
    task: Task[Any, Any, Any], rows: Sequence[DataRow], *, config: Config, known: Model | None = None
) -> BaseModel:
    """With the head, the labels and the memo of the task; a function of the config, the rows and the `known` model."""
    base = known if known is not None else _make_new(task, rows, config=config)
    labels = task.labels(rows)
    spec = task.spec(base.spec, labels=labels)
    same_head = spec == base.spec and labels == base.labels
    network = base.network if same_head else _with_new_head(spec, base, seed=config.seed)
    memo = {"task": task.name} | task.memo(rows) | ({} if config.base is None else {"base": config.base})
    model = base.replace(spec=spec, network=network, labels=labels, memo=memo, left_aside=())
    new_head = config.base is not None and not same_head
    return BaseModel(task.prepare_head(model, base=base, seed=config.seed) if new_head else model, new_head)


def copy_base(task: Task[Any, Any, Any], base: BaseModel, rows: Sequence[DataRow], *, device: str = "cpu") -> Model:
    """A copy to train on these rows, its new head fitted to them; on this device."""
    model = base.model.replace(network=copy.deepcopy(base.model.network))
    if base.new_head and rows:
        task.fit_head(rows, model=model)
    model.network.to(find_device(device))
    return model


# --- new models -----------------------------------------------------------------------------------------------------


def _make_new(task: Task[Any, Any, Any], rows: Sequence[DataRow], *, config: Config) -> Model:
    form = choose_form(task, config)
    tokenizer = _train_tokenizer(form, rows, kind=config.tokenizer or TOKENIZERS[form], vocab=config.vocab)
    spec = _size_new(task, config, vocab=tokenizer.vocab)
    network, generation = build_network(spec, seed=config.seed), make_generation_defaults(tokenizer, form)
    return Model(spec=spec, network=network, tokenizer=tokenizer, generation=generation)


def _size_new(task: Task[Any, Any, Any], config: Config, *, vocab: int) -> ModelSpec:
    sizes = {name: getattr(config, name) for name in ("width", "layers", "heads", "context")}
    changes = {name: value for name, value in sizes.items() if value is not None}
    return sized(config.family or FORM_FAMILY[choose_form(task, config)], config.size, vocab=vocab, **changes)


def _train_tokenizer(form: Form, rows: Sequence[DataRow], *, kind: TokenizerKind, vocab: int) -> Tokenizer:
    if kind not in get_args(TokenizerKind):
        raise UnknownName("kind of tokenizer", kind, get_args(TokenizerKind))
    special = None
    if form == "encoder" and kind != "wordpiece":
        special = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
    return train_tokenizer(
        _iterate_texts(rows), kind=kind, vocab=vocab, special=special, ends=form == "encoder-decoder"
    )


def _iterate_texts(rows: Sequence[DataRow]) -> Iterator[str]:
    left = MAX_CHARACTERS
    for row in rows:
        for text in row.texts:
            left -= len(text)
            yield text
        if left < 0:
            return


def make_generation_defaults(tokenizer: Tokenizer, form: Form) -> GenerationDefaults:
    """Texts end with eos; the target of an encoder–decoder begins with pad, which no text contains."""
    first = tokenizer.pad if form == "encoder-decoder" else None
    return GenerationDefaults(eos=tokenizer.eos, bos=tokenizer.bos, pad=tokenizer.pad, first=first)


# --- pretrained models ----------------------------------------------------------------------------------------------


def _read_base(task: Task[Any, Any, Any], name: str) -> Model:
    _base_form(task, name)
    model = model_folder.read(model_store.find_model(name), dtype=torch.float32, weights="float32")
    if model.tokenizer is None:
        raise TriformError(f"the model {name} has no tokenizer, so it cannot learn to {task.name}; start from another")
    return model


def _base_form(task: Task[Any, Any, Any], name: str) -> Form:
    """Read from the folder's config and tensor headers."""
    form = describe_folder(model_store.find_model(name)).form
    if form not in task.forms:
        raise TriformError(
            f"the model {name} has the form {form!r}; to {task.name}, start from one of the form "
            f"{' or '.join(map(repr, task.forms))}"
        )
    return form


@torch.no_grad()
def _with_new_head(spec: ModelSpec, base: Model, *, seed: int) -> Network:
    """A network of this spec with the weights of the base model, but a new head."""
    network = build_network(spec, seed=seed, dtype=base.network.dtype)
    weights = base.network.state_dict()
    for path, tensor in network.state_dict().items():
        if not path.startswith("readout.") and path in weights:
            tensor.copy_(weights[path])
    return network
