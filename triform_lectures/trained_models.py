"""The two little models that lessons look into, a decoder and a translator (whose encoder is the trained
encoder of the lessons): trained here on the little world, once, and kept.

A model's folder is named by the hash of everything that decides it (spec, data, config), so a changed recipe is another
model and nothing stale is ever read. What is kept proves that it was finished: a model's folder says how many steps it
was trained, a finding carries its SHA-256. Without that proof, or where files have changed, it is made again. Kept
below `TRIFORM_HOME`, or the folder that `TRIFORM_LECTURE` names. Refuses to know what the models are for.
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
from triform.core.initial_weights import build
from triform.data.row_cache import digest
from triform.errors import TriformError
from triform.files import manifest
from triform.files.locks import FolderBusy
from triform.files.safe_folder import Box
from triform.generation_defaults import Generation
from triform.inspect.view import View, look
from triform.model import Model
from triform.spec import ModelSpec, to_json
from triform.text.tokenizer import Tokenizer
from triform.text.train_tokenizer import train_tokenizer
from triform.train.examples import Listed, Place, SourceTarget, Tokens
from triform.train.loop import train
from triform.train.run_config import Config
from triform.train.token_objectives import Language, NextToken, Translate
from triform.weights import model_folder as folders
from triform.weights.model_store import home

Name: TypeAlias = Literal["decoder", "pair"]

SENTENCES = 6000
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "eos": "</s>", "mask": "[MASK]"}
STEPS = "trained_steps"  # in a model's memo
CONFIG = Config(seed=0, steps=500, batch_tokens=1024, learning_rate=3e-3, dropout=0.0, weight_decay=0.01)


def kept() -> Path:
    """Where trained models and what was found with them are kept."""
    return Path(os.environ.get("TRIFORM_LECTURE") or home() / "lecture")


Found = TypeVar("Found")


class Kept(msgspec.Struct, frozen=True):
    """A finding that was finished: `sha256` is of the bytes of `found`."""

    sha256: str
    found: msgspec.Raw


def remembered(name: str, *parts: object, make: Callable[[], Found], kind: type[Found]) -> Found:
    """What `make` finds, made once: kept as JSON under a name that says all that decides it. Nothing is kept where
    `make` does not come to its end."""
    path = kept() / f"{name}-{digest(*parts)[:16]}.json"
    try:
        return read_finding(path, kind)
    except (OSError, msgspec.MsgspecError):
        found = make()
    write_finding(path, found)
    return found


def read_finding(path: Path, kind: type[Found]) -> Found:
    stored = msgspec.json.decode(path.read_bytes(), type=Kept)
    if hashlib.sha256(stored.found).hexdigest() != stored.sha256:
        raise msgspec.ValidationError(f"{path} is not as it was written")
    return msgspec.json.decode(stored.found, type=kind)


def write_finding(path: Path, found: object) -> None:
    encoded = msgspec.json.encode(found)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(msgspec.json.encode(Kept(hashlib.sha256(encoded).hexdigest(), msgspec.Raw(encoded))))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


class World(NamedTuple):
    """Sentences of the little world in two languages, and a tokenizer in which every word is a token."""

    english: tuple[str, ...]
    german: tuple[str, ...]
    tokenizer: Tokenizer  # of English
    both: Tokenizer  # of English and German


@lru_cache(maxsize=1)
def world() -> World:
    pairs = list(rows("translate", split="train", seed=1, count=SENTENCES))
    english, german = tuple(pair["source"] for pair in pairs), tuple(pair["target"] for pair in pairs)
    return World(english, german, words(english, 1500), words(english + german, 3000))


def words(texts: Sequence[str], vocab: int) -> Tokenizer:
    return train_tokenizer(texts, kind="wordpiece", vocab=vocab, special=SPECIAL, ends=True)


class Recipe(NamedTuple):
    """All that decides a little model."""

    spec: ModelSpec
    tokenizer: Tokenizer
    objective: Language[Any]
    examples: Listed[Any]
    task: str  # what the objective asks, in a word, for the name of the folder

    def name(self, config: Config) -> str:
        parts = to_json(self.spec), config.to_toml(), self.examples.fingerprint, self.task
        return digest(*parts)[:16]


@lru_cache(maxsize=1)
def decoder() -> Recipe:
    own = world().tokenizer
    texts = own.ids_many(world().english)
    spec = families.gpt2(vocab=own.vocab, width=64, layers=3, heads=4, context=64)
    # Every text begins with the end of the one before it, so that the first word is learned too.
    begun = [[end_of(own), *ids] for ids in texts]
    return Recipe(spec, own, NextToken(), listed([Tokens(ids) for ids in begun]), "next")


@lru_cache(maxsize=1)
def pair() -> Recipe:
    own = world().both
    spec = families.vaswani(vocab=own.vocab, width=64, layers=2, heads=4)
    made = paired(world().english, world().german, tokenizer=own)
    return Recipe(spec, own, Translate(start=end_of(own)), made, "translate")


RECIPES: dict[Name, Callable[[], Recipe]] = {"decoder": decoder, "pair": pair}


def listed(examples: Sequence[Tokens]) -> Listed[Tokens]:
    return Listed(examples, lengths=[len(example.ids) for example in examples])


def paired(sources: Sequence[str], targets: Sequence[str], *, tokenizer: Tokenizer) -> Listed[SourceTarget]:
    sides = zip(tokenizer.ids_many(sources), tokenizer.ids_many(targets), strict=True)
    made = [SourceTarget(source, target) for source, target in sides]
    return Listed(made, lengths=[len(each.source) + len(each.target) for each in made])


def place(row: int) -> Place:
    return Place(0, 0, row)


def end_of(tokenizer: Tokenizer) -> int:
    if tokenizer.eos is None:
        raise TriformError("the little world's tokenizer has no end")
    return tokenizer.eos


@lru_cache(maxsize=8)
def little(name: Name, *, config: Config = CONFIG) -> Model:
    """A little model, read if it has been trained to its end before; a damaged one is trained again."""
    recipe = RECIPES[name]()
    place = kept() / f"{name}-{recipe.name(config)}"
    if place.is_dir():
        try:
            return read_model(place, steps=config.steps)
        except TriformError:
            pass
    network = build(recipe.spec, seed=config.seed)
    outcome = train(network, objective=recipe.objective, examples=recipe.examples, config=config)
    start = end_of(recipe.tokenizer)
    generation, memo = Generation(first=start, eos=start), {STEPS: outcome.step}
    made = Model(recipe.spec, network, recipe.tokenizer, generation=generation, memo=memo)
    with suppress(FolderBusy):  # another process keeps the same model just now
        folders.write(place, model=made)
        return read_model(place, steps=config.steps)
    network.eval()
    return made


def read_model(place: Path, *, steps: int | None) -> Model:
    """A model that was trained for all its steps, with the files that were written then."""
    if manifest.read(Box(place)) is None:
        raise TriformError(f"{place} has no {manifest.NAME}: its files cannot be verified")
    found = folders.read(place)
    if (made := found.memo.get(STEPS)) != steps:
        raise TriformError(f"{place} was trained for {made} steps, not for {steps}")
    return found


def glance(model: Model, text: str) -> View:
    """A look into a model while it reads a text, in whatever form it is."""
    ids = model.tokenizer.encode(text).ids if model.tokenizer is not None else ()
    if model.network.sides == 2:
        return look(model, ids, start=model.generation.first)
    begin = (end_of(world().tokenizer),) if model.spec.form == "decoder" else ()
    return look(model, (*begin, *ids))
