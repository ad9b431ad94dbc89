"""The two little models of the lessons, a decoder and a translator: trained once on the little world, then stored.

A model's folder is named by a hash of its recipe (spec, data, config), so a changed recipe is another model. A stored
model records how many steps it was trained, a stored finding its SHA-256; if that is missing or files have changed, it
is made again. Stored below `TRIFORM_HOME`, or in the folder `TRIFORM_LECTURE`.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from little_world import rows
from triform import families
from triform.core.initial_weights import build_network
from triform.data.row_cache import digest
from triform.errors import TriformError
from triform.files import manifest
from triform.files.atomic_file import write_file
from triform.files.format_version import CURRENT_FORMAT, NewerFormat, check_format
from triform.files.locks import FolderBusy
from triform.files.safe_folder import SafeFolder
from triform.generation_defaults import GenerationDefaults
from triform.inspect.view import View, look
from triform.model import Model
from triform.spec import ModelSpec, to_json
from triform.text.tokenizer import Tokenizer
from triform.text.train_tokenizer import train_tokenizer
from triform.train.examples import ExampleList, ExamplePlace, SourceTarget, TokenExample
from triform.train.loop import train
from triform.train.run_config import Config
from triform.train.token_objectives import NextToken, SequenceToSequence, TokenObjective
from triform.weights import model_folder as folders
from triform.weights.model_store import home_folder

ModelName: TypeAlias = Literal["decoder", "pair"]

WORLD_SENTENCES = 6000
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "eos": "</s>", "mask": "[MASK]"}
STEPS_KEY = "trained_steps"  # in a model's memo
CONFIG = Config(seed=0, steps=500, batch_tokens=1024, learning_rate=3e-3, dropout=0.0, weight_decay=0.01)


def store_folder() -> Path:
    """The folder of trained models and findings."""
    return Path(os.environ.get("TRIFORM_LECTURE") or home_folder() / "lecture")


Found = TypeVar("Found")


class StoredFinding(msgspec.Struct, frozen=True):
    """A complete finding: `sha256` is of the bytes of `found`."""

    sha256: str
    found: msgspec.Raw
    format_version: int = CURRENT_FORMAT


def remember(name: str, *parts: object, make: Callable[[], Found], kind: type[Found]) -> Found:
    """The result of `make`, stored as JSON under a name with the hash of `parts`; made only if it is not stored yet.
    Nothing is stored if `make` does not finish."""
    path = store_folder() / f"{name}-{digest(*parts)[:16]}.json"
    try:
        return read_finding(path, kind)
    except (OSError, msgspec.MsgspecError):
        found = make()
    write_finding(path, found)
    return found


def read_finding(path: Path, kind: type[Found]) -> Found:
    data = path.read_bytes()
    check_format(data, what=path, otherwise="set TRIFORM_LECTURE to another folder")
    stored = msgspec.json.decode(data, type=StoredFinding)
    if hashlib.sha256(stored.found).hexdigest() != stored.sha256:
        raise msgspec.ValidationError(f"{path} has changed since it was written")
    return msgspec.json.decode(stored.found, type=kind)


def write_finding(path: Path, found: object) -> None:
    encoded = msgspec.json.encode(found)
    write_file(path, msgspec.json.encode(StoredFinding(hashlib.sha256(encoded).hexdigest(), msgspec.Raw(encoded))))


class WorldTexts(NamedTuple):
    """Sentences of the little world in two languages, and a tokenizer in which every word is a token."""

    english: tuple[str, ...]
    german: tuple[str, ...]
    tokenizer: Tokenizer  # of English
    both_tokenizer: Tokenizer  # of English and German


@lru_cache(maxsize=1)
def load_world() -> WorldTexts:
    pairs = list(rows("translate", split="train", seed=1, count=WORLD_SENTENCES))
    english, german = tuple(pair["source"] for pair in pairs), tuple(pair["target"] for pair in pairs)
    return WorldTexts(
        english, german, train_word_tokenizer(english, 1500), train_word_tokenizer(english + german, 3000)
    )


def train_word_tokenizer(texts: Sequence[str], vocab: int) -> Tokenizer:
    return train_tokenizer(texts, kind="wordpiece", vocab=vocab, special=SPECIAL, ends=True)


class Recipe(NamedTuple):
    """Everything that determines a little model."""

    spec: ModelSpec
    tokenizer: Tokenizer
    objective: TokenObjective[Any]
    examples: ExampleList[Any]
    task: str  # the objective, in one word, for the name of the folder

    def name(self, config: Config) -> str:
        parts = to_json(self.spec), config.to_toml(), self.examples.fingerprint, self.task
        return digest(*parts)[:16]


@lru_cache(maxsize=1)
def decoder_recipe() -> Recipe:
    own = load_world().tokenizer
    texts = own.ids_many(load_world().english)
    spec = families.gpt2(vocab=own.vocab, width=64, layers=3, heads=4, context=64)
    # Every text begins with the end token, so that the first word is learned, too.
    return Recipe(
        spec, own, NextToken(), list_examples([TokenExample([end_token(own), *ids]) for ids in texts]), "next"
    )


@lru_cache(maxsize=1)
def translator_recipe() -> Recipe:
    own = load_world().both_tokenizer
    spec = families.vaswani(vocab=own.vocab, width=64, layers=2, heads=4)
    made = pair_examples(load_world().english, load_world().german, tokenizer=own)
    return Recipe(spec, own, SequenceToSequence(start=end_token(own)), made, "translate")


RECIPES: dict[ModelName, Callable[[], Recipe]] = {"decoder": decoder_recipe, "pair": translator_recipe}


def list_examples(examples: Sequence[TokenExample]) -> ExampleList[TokenExample]:
    return ExampleList(examples, lengths=[len(example.ids) for example in examples])


def pair_examples(sources: Sequence[str], targets: Sequence[str], *, tokenizer: Tokenizer) -> ExampleList[SourceTarget]:
    sides = zip(tokenizer.ids_many(sources), tokenizer.ids_many(targets), strict=True)
    made = [SourceTarget(source, target) for source, target in sides]
    return ExampleList(made, lengths=[len(each.source) + len(each.target) for each in made])


def row_place(row: int) -> ExamplePlace:
    return ExamplePlace(0, 0, row)


def end_token(tokenizer: Tokenizer) -> int:
    if tokenizer.eos is None:
        raise TriformError("the little world's tokenizer has no end token")
    return tokenizer.eos


@lru_cache(maxsize=8)
def load_little_model(name: ModelName, *, config: Config = CONFIG) -> Model:
    """A little model, read if it is stored completely; otherwise trained and stored."""
    recipe = RECIPES[name]()
    place = store_folder() / f"{name}-{recipe.name(config)}"
    if place.is_dir():
        try:
            return read_model(place, steps=config.steps)
        except NewerFormat:
            raise
        except TriformError:
            pass
    network = build_network(recipe.spec, seed=config.seed)
    outcome = train(network, objective=recipe.objective, examples=recipe.examples, config=config)
    start = end_token(recipe.tokenizer)
    generation, memo = GenerationDefaults(first=start, eos=start), {STEPS_KEY: outcome.step}
    made = Model(recipe.spec, network, recipe.tokenizer, generation=generation, memo=memo)
    with suppress(FolderBusy):  # another process is writing the same model
        folders.write(place, model=made)
        return read_model(place, steps=config.steps)
    network.eval()
    return made


def read_model(place: Path, *, steps: int | None) -> Model:
    """A model that was trained for all its steps and whose files have not changed."""
    if manifest.read(SafeFolder(place)) is None:
        raise TriformError(f"{place} has no {manifest.NAME}: its files cannot be verified")
    found = folders.read(place)
    if (made := found.memo.get(STEPS_KEY)) != steps:
        raise TriformError(f"{place} was trained for {made} steps, not for {steps}")
    return found


def look_at_text(model: Model, text: str) -> View:
    """A view of a model of any form while it reads a text."""
    ids = model.tokenizer.encode(text).ids if model.tokenizer is not None else ()
    if model.network.sides == 2:
        return look(model, ids, start=model.generation.first)
    begin = (end_token(load_world().tokenizer),) if model.spec.form == "decoder" else ()
    return look(model, (*begin, *ids))
