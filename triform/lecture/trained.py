"""The two little models that lessons look into, a decoder and a translator (whose encoder is the trained
encoder of the lessons): trained here on the little world, once, and kept.

A model's folder is named by the hash of everything that decides it (spec, data, config), so a changed recipe is another
model and nothing stale is ever read. Kept below `TRIFORM_HOME`, or the folder that `TRIFORM_LECTURE` names. Refuses to
know what the models are for.
"""

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from triform import families
from triform.data.cache import digest
from triform.data.world import rows
from triform.errors import TriformError
from triform.first_numbers import build
from triform.observe.view import View, look
from triform.spec import ModelSpec, to_json
from triform.text.tokenizer import Tokenizer
from triform.text.training import train_tokenizer
from triform.train.config import Config
from triform.train.examples import Listed, Place, SourceTarget, Tokens
from triform.train.language import Language, NextToken, Translate
from triform.train.loop import train
from triform.weights import folder as folders
from triform.weights.folder import Loaded
from triform.weights.generation import Generation
from triform.weights.shelf import home

Name: TypeAlias = Literal["decoder", "pair"]

SENTENCES = 6000
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "eos": "</s>", "mask": "[MASK]"}
CONFIG = Config(seed=0, steps=500, batch_tokens=1024, learning_rate=3e-3, dropout=0.0, weight_decay=0.01)


def kept() -> Path:
    """Where trained models and what was found with them are kept."""
    return Path(os.environ.get("TRIFORM_LECTURE") or home() / "lecture")


Found = TypeVar("Found")


def remembered(name: str, *parts: object, make: Callable[[], Found], kind: type[Found]) -> Found:
    """What `make` finds, made once: kept as JSON under a name that says all that decides it."""
    path = kept() / f"{name}-{digest(*parts)[:16]}.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        found = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(msgspec.json.encode(found))
    draft.replace(path)
    return found


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
def little(name: Name, *, config: Config = CONFIG) -> Loaded:
    """A little model, read if it has been trained before; a damaged one is trained again."""
    recipe = RECIPES[name]()
    place = kept() / f"{name}-{recipe.name(config)}"
    if place.is_dir():
        try:
            return folders.read(place)
        except TriformError:
            pass
    network = build(recipe.spec, seed=config.seed)
    train(network, objective=recipe.objective, examples=recipe.examples, config=config)
    start = end_of(recipe.tokenizer)
    made = Loaded(recipe.spec, network, recipe.tokenizer, generation=Generation(first=start, eos=start))
    place.parent.mkdir(parents=True, exist_ok=True)
    folders.write(place, model=made)
    return folders.read(place)


def glance(model: Loaded, text: str) -> View:
    """A look into a model while it reads a text, in whatever form it is."""
    ids = model.tokenizer.encode(text).ids if model.tokenizer is not None else ()
    if model.network.sides == 2:
        return look(model, ids, start=model.generation.first)
    begin = (end_of(world().tokenizer),) if model.spec.form == "decoder" else ()
    return look(model, (*begin, *ids))
