"""`Model`: spec, weights, tokenizer and settings of a model, with short methods for everything it can do.

A value: loading a folder returns one, saving takes one, training and importing create new ones with `replace`.
Its methods call the packages that do the work, imported on the first call.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, overload

import torch

from triform.core import initial_weights, inputs
from triform.core.build import cache_for
from triform.core.forms import Form
from triform.errors import InputError
from triform.generation_defaults import Generation
from triform.parameters import parameters
from triform.pooling import Pooling, Role
from triform.precision import dtype_named
from triform.spec import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Unpack

    from torch import Tensor

    from triform.check.run_checks import Report
    from triform.core.cache import Cache
    from triform.core.inputs import Ids, Keep
    from triform.generate.api import Answer, Prompt
    from triform.generate.events import Event
    from triform.inspect.view import View
    from triform.tasks.answer import ExtractedAnswer
    from triform.tasks.chat import ChatReply
    from triform.tasks.classify import Classification
    from triform.tasks.fill import FilledText
    from triform.tasks.rerank import Reranking
    from triform.tasks.search import SearchHits
    from triform.tasks.summarize import Summary
    from triform.tasks.tag import TaggedText
    from triform.tasks.task import Reply
    from triform.tasks.text_to_text import GenerationSettings, SamplingSettings
    from triform.tasks.translate import Translation
    from triform.tasks.vector_index import Index
    from triform.text.chat_template import ChatTemplate
    from triform.text.tokenizer import Tokenizer


Texts: TypeAlias = "list[str] | tuple[str, ...]"  # answered by a list; one text, a str, by one answer
P = ParamSpec("P")
T = TypeVar("T")


def check_options(method: Callable[P, T]) -> Callable[P, T]:
    """An option that does not exist is refused in the words of the command line and the server."""
    known = signature(method).parameters

    @wraps(method)
    def checked(*args: P.args, **options: P.kwargs) -> T:
        for name in options:
            if name not in known:
                from triform.tasks.options import UnknownOption

                keywords = (each.name for each in known.values() if each.kind is each.KEYWORD_ONLY)
                raise UnknownOption(method.__name__, name, keywords)
        return method(*args, **options)

    return checked


def _texts(texts: str | Sequence[str]) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else tuple(texts)


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """The spec, the network with its weights, the tokenizer (or None), and the settings from the model folder. Settings
    that Triform does not know are kept in `config` and `others`."""

    spec: ModelSpec
    network: Form
    tokenizer: Tokenizer | None = None
    template: ChatTemplate | None = None
    labels: tuple[str, ...] = ()  # of a classification or tagging head
    generation: Generation = field(default_factory=Generation)
    pooling: Pooling | None = None  # of a sentence-transformers folder
    config: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)  # the rest of generation_config.json
    left_aside: tuple[str, ...] = ()  # tensors in the files that this model does not use
    memo: dict[str, Any] = field(default_factory=dict)  # settings of the tasks it was trained for
    own_folders: set[Path] = field(default_factory=set)  # loaded from there, or saved there before

    def __repr__(self) -> str:
        return f"Model({self.spec.form}, {parameters(self.spec):,} parameters, {self.dtype})"

    def replace(self, **changes: Any) -> Model:
        """A new model with these fields changed; it has no folder of its own yet."""
        return dataclasses.replace(self, **{"own_folders": set(), **changes})

    def require_tokenizer(self) -> Tokenizer:
        """The tokenizer, or an InputError if there is none."""
        if self.tokenizer is None:
            raise InputError("this model has no tokenizer, so it can neither read nor write text; give token ids")
        return self.tokenizer

    @property
    def dtype(self) -> torch.dtype:
        return self.network.token.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.network.token.weight.device

    @torch.no_grad()
    def logits(
        self,
        ids: Ids,
        *,
        target: Ids | None = None,
        keep: Keep | None = None,
        target_keep: Keep | None = None,
        kinds: Ids | None = None,
    ) -> Tensor:
        """Scores for every position, [B, T, V]; [B, labels], one row per text, where the head reads one token.

        `keep` is True at real tokens; `kinds` are segment ids. Padding may be anywhere; it is skipped, with scores 0.
        """
        return inputs.logits(
            self.network, self.spec, ids, target=target, keep=keep, target_keep=target_keep, kinds=kinds
        )

    def cache(self, *, rows: int = 1, capacity: int = 64) -> Cache:
        """An empty cache for this model's decoder."""
        return cache_for(self.spec, rows=rows, capacity=capacity, dtype=self.dtype, device=self.device)

    def check(self) -> Report:
        """Run the self-checks on this model."""
        from triform.check.run_checks import check

        return check(self.spec, self.network)

    def stream(self, prompt: Prompt, **settings: Any) -> Iterator[Event]:
        """Events while generating: `for step in model.stream("Once", max_tokens=50): print(step.text, end="")`"""
        from triform.generate.api import stream

        return stream(self, prompt, **settings)

    # --- tasks: keywords are the options of the task, checked by name ------------------------------------------------

    def complete(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        stop: str | Sequence[str] = (),
        seed: int | None = None,
        n: int = 1,
        beams: int | None = None,
        logprobs: int = 0,
        lookup: bool = False,
        rows: int | None = None,
        start: int | None = None,
        pack: bool | None = None,
        **generation: Unpack[GenerationSettings],
    ) -> list[Answer]:
        """Whole answers to a batch of prompts; `beams=4` searches, `n=3` gives three per prompt."""
        from triform.generate import api
        from triform.tasks import named

        options = named("complete").options(
            max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, stop=_texts(stop), seed=seed, n=n,
            beams=beams, logprobs=logprobs, lookup=lookup, **generation,
        )  # fmt: skip
        return api.complete(self, prompts, start=start, pack=pack, rows=rows or api.ROWS, **options.settings())

    def chat(
        self,
        messages: str | Sequence[Mapping[str, str]],
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        stop: str | Sequence[str] = (),
        seed: int | None = None,
        **generation: Unpack[GenerationSettings],
    ) -> ChatReply:
        """The assistant's next message: `model.chat("Hello").message.content`, or to a list of {role, content}."""
        from triform.tasks.chat import ChatTask, conversation

        task = ChatTask()
        options = task.options(
            max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, stop=_texts(stop), seed=seed,
            **generation,
        )  # fmt: skip
        return next(task.run([conversation(messages)], model=self, options=options))

    @overload
    def translate(
        self,
        texts: str,
        *,
        max_tokens: int | None = None,
        beams: int | None = None,
        alignment: bool = False,
        pair: str | None = None,
        **generation: Unpack[SamplingSettings],
    ) -> Translation: ...
    @overload
    def translate(
        self,
        texts: Texts,
        *,
        max_tokens: int | None = None,
        beams: int | None = None,
        alignment: bool = False,
        pair: str | None = None,
        **generation: Unpack[SamplingSettings],
    ) -> list[Translation]: ...
    def translate(
        self,
        texts: str | Texts,
        *,
        max_tokens: int | None = None,
        beams: int | None = None,
        alignment: bool = False,
        pair: str | None = None,
        **generation: Unpack[SamplingSettings],
    ) -> Translation | list[Translation]:
        """`model.translate("A lion.", beams=4).text`; `alignment=True` shows where each word came from."""
        found: Translation | list[Translation] = self._answer(
            "translate", texts, max_tokens=max_tokens, beams=beams, alignment=alignment, pair=pair, **generation
        )
        return found

    @overload
    def summarize(
        self,
        texts: str,
        *,
        max_tokens: int | None = None,
        beams: int | None = None,
        **generation: Unpack[SamplingSettings],
    ) -> Summary: ...
    @overload
    def summarize(
        self,
        texts: Texts,
        *,
        max_tokens: int | None = None,
        beams: int | None = None,
        **generation: Unpack[SamplingSettings],
    ) -> list[Summary]: ...
    def summarize(
        self,
        texts: str | Texts,
        *,
        max_tokens: int | None = None,
        beams: int | None = None,
        **generation: Unpack[SamplingSettings],
    ) -> Summary | list[Summary]:
        """`model.summarize(article).text`"""
        found: Summary | list[Summary] = self._answer(
            "summarize", texts, max_tokens=max_tokens, beams=beams, **generation
        )
        return found

    @overload
    def answer(
        self,
        questions: str,
        *,
        context: str,
        max_tokens: int | None = None,
        beams: int | None = None,
        **generation: Unpack[SamplingSettings],
    ) -> ExtractedAnswer: ...
    @overload
    def answer(
        self,
        questions: Texts,
        *,
        context: str,
        max_tokens: int | None = None,
        beams: int | None = None,
        **generation: Unpack[SamplingSettings],
    ) -> list[ExtractedAnswer]: ...
    def answer(
        self,
        questions: str | Texts,
        *,
        context: str,
        max_tokens: int | None = None,
        beams: int | None = None,
        **generation: Unpack[SamplingSettings],
    ) -> ExtractedAnswer | list[ExtractedAnswer]:
        """`model.answer("Who went?", context="Jack went to Rome.").text`"""
        found: ExtractedAnswer | list[ExtractedAnswer] = self._answer(
            "answer", questions, about=[context], max_tokens=max_tokens, beams=beams, **generation
        )
        return found

    @overload
    def classify(self, texts: str, *, top: int = 5) -> Classification: ...
    @overload
    def classify(self, texts: Texts, *, top: int = 5) -> list[Classification]: ...
    @check_options
    def classify(self, texts: str | Texts, *, top: int = 5) -> Classification | list[Classification]:
        """`model.classify("A stirring film.").labels`"""
        found: Classification | list[Classification] = self._answer("classify", texts, top=top)
        return found

    @overload
    def tag(self, texts: str) -> TaggedText: ...
    @overload
    def tag(self, texts: Texts) -> list[TaggedText]: ...
    @check_options
    def tag(self, texts: str | Texts) -> TaggedText | list[TaggedText]:
        """`model.tag("Jack went to Rome.").entities`"""
        found: TaggedText | list[TaggedText] = self._answer("tag", texts)
        return found

    @overload
    def fill(self, texts: str, *, k: int = 5) -> FilledText: ...
    @overload
    def fill(self, texts: Texts, *, k: int = 5) -> list[FilledText]: ...
    @check_options
    def fill(self, texts: str | Texts, *, k: int = 5) -> FilledText | list[FilledText]:
        """The k likeliest tokens for each mask: `model.fill("the [MASK] sat").masks[0]`"""
        found: FilledText | list[FilledText] = self._answer("fill", texts, k=k)
        return found

    @check_options
    def embed(self, texts: str | Texts, *, windows: bool = False, role: Role = "text") -> Tensor:
        """[D] of one text, [N, D] of several.

        Of a text that is too long, only the beginning is used; with `windows` all of it, as the mean over windows.
        `role` ("query", "document") chooses the folder's prompt for it.
        """
        from triform.tasks.embed import EmbedTask

        several = [texts] if isinstance(texts, str) else texts
        vectors = EmbedTask().vectors(several, model=self, windows=windows, role=role)
        return vectors[0] if isinstance(texts, str) else vectors

    @overload
    def search(self, queries: str, *, index: Index | str | Path, k: int = 10) -> SearchHits: ...
    @overload
    def search(self, queries: Texts, *, index: Index | str | Path, k: int = 10) -> list[SearchHits]: ...
    @check_options
    def search(self, queries: str | Texts, *, index: Index | str | Path, k: int = 10) -> SearchHits | list[SearchHits]:
        """`model.search("lions", index="docs.index").hits`, nearest first."""
        found: SearchHits | list[SearchHits] = self._answer("search", queries, index=index, k=k)
        return found

    @check_options
    def rerank(self, query: str, passages: Texts, *, top: int | None = None) -> Reranking:
        """`model.rerank("Who digs?", ["A cat sat.", "A mole dug."]).ranked[0].passage`, highest score first."""
        found: Reranking = self._answer("rerank", query, about=passages, top=top)
        return found

    @overload
    def run(self, texts: str, **options: Any) -> Reply: ...
    @overload
    def run(self, texts: Texts, **options: Any) -> list[Reply]: ...
    def run(self, texts: str | Texts, **options: Any) -> Reply | list[Reply]:
        """The task this model was trained for, else what its head supports."""
        from triform.tasks.task_of_model import own_task

        task = own_task(self)
        task.check_takes_texts()
        found: Reply | list[Reply] = self._answer(task.name, texts, **options)
        return found

    def _answer(self, name: str, texts: str | Texts, *, about: Sequence[str] | None = None, **options: Any) -> Any:
        """One answer to a text, a list of answers to several; `about` are other texts that they are about."""
        from triform.tasks import named

        task = named(name)
        several = [texts] if isinstance(texts, str) else list(texts)
        questions = [task.question_of(text) if about is None else task.question_about(text, about) for text in several]
        answers = list(task.run(questions, model=self, options=task.options(**options)))
        return answers[0] if isinstance(texts, str) else answers

    def look(self, text: str | Sequence[int], target: str | Sequence[int] | None = None) -> View:
        """Every tensor of one forward pass: `q, k, v = model.look("the fat ginger cat").qkv(3)`"""
        from triform.inspect.view import look

        return look(self, text, target, start=self.generation.first)

    def without_heads(self, heads: Iterable[tuple[int, int]]) -> AbstractContextManager[None]:
        """`with model.without_heads({(0, 1), (3, 2)}): …` switches attention heads (layer, head) off."""
        from triform.inspect.interventions import without_heads

        return without_heads(self.network, set(heads))

    def save(self, folder: str | Path, *, dtype: str | torch.dtype | None = None, overwrite: bool = False) -> None:
        """A model folder in the Hugging Face layout; written atomically.

        A folder with other contents is replaced only with `overwrite`; the one this model was loaded from or saved to
        before is replaced without it.
        """
        from triform.weights import model_folder

        place = Path(folder).resolve()
        if not overwrite and place not in self.own_folders:
            model_folder.check_free(folder)
        model_folder.write(folder, model=self, dtype=dtype_named(dtype))
        self.own_folders.add(place)


def build(spec: ModelSpec, *, seed: int = 0, dtype: str | torch.dtype = torch.float32, device: str = "cpu") -> Model:
    """A model with initial, untrained weights; the same seed gives the same weights."""
    network = initial_weights.build(spec, seed=seed, dtype=dtype_named(dtype) or torch.float32, device=device)
    return Model(spec=spec, network=network)
