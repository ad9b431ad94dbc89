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
from triform.core.build import make_cache
from triform.core.forms import Form
from triform.core.quantized_network import find_matrices, name_kind
from triform.devices import check_weight_kind, find_device
from triform.errors import InputError
from triform.generation_defaults import GenerationDefaults
from triform.parameters import count_parameters
from triform.pooling import Pooling, Role
from triform.precision import to_dtype
from triform.spec import ModelSpec
from triform.weight_kinds import AUTO, weight_kind_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Unpack

    from torch import Tensor

    from triform.check.run_checks import CheckReport
    from triform.core.cache import Cache
    from triform.core.inputs import Ids, Keep
    from triform.generate.api import GeneratedText, Prompt
    from triform.generate.events import Event
    from triform.inspect.activations import Pooled
    from triform.inspect.activations_file import Activations
    from triform.inspect.changes import Intervention
    from triform.inspect.labelled_array import LabelledArray
    from triform.inspect.measures import Measure
    from triform.inspect.module_paths import AttentionKind, StackName
    from triform.inspect.parse_changes import ChangeSources
    from triform.inspect.sweeps import MakeChange, Over
    from triform.inspect.view import View
    from triform.page.notebook import PageFrame
    from triform.tasks.answer import ExtractedAnswer
    from triform.tasks.answer_list import AnswerList
    from triform.tasks.chat import ChatReply
    from triform.tasks.classify import Classification
    from triform.tasks.decide import Decision
    from triform.tasks.fill import FilledText
    from triform.tasks.rerank import Reranking
    from triform.tasks.score import TextScore
    from triform.tasks.search import SearchHits, SearchSettings
    from triform.tasks.search_ranking import SearchMode
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
    generation: GenerationDefaults = field(default_factory=GenerationDefaults)
    pooling: Pooling | None = None  # of a sentence-transformers folder
    config: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)  # the rest of generation_config.json
    left_aside: tuple[str, ...] = ()  # tensors in the files that this model does not use
    memo: dict[str, Any] = field(default_factory=dict)  # settings of the tasks it was trained for
    own_folders: set[Path] = field(default_factory=set)  # loaded from there, or saved there before
    files_hash: str = ""  # SHA-256 of the files it was read from, where their folder has a manifest
    draft: Model | None = None  # drafts tokens when this model generates; changes no answer

    @property
    def weights(self) -> str:
        """The kind of its weights: "float32" (or another `dtype`), "bfloat16", "q8", "q4"."""
        kind = name_kind(find_matrices(self.network))
        return str(self.dtype).removeprefix("torch.") if kind == "float32" else kind

    def __repr__(self) -> str:
        return f"Model({self.spec.form}, {count_parameters(self.spec):,} parameters, {self.weights})"

    def replace(self, **changes: Any) -> Model:
        """A new model with these fields changed; it has no folder of its own yet."""
        return dataclasses.replace(self, **{"own_folders": set(), "files_hash": "", **changes})

    def require_tokenizer(self) -> Tokenizer:
        """The tokenizer, or an InputError if there is none."""
        if self.tokenizer is None:
            raise InputError("this model has no tokenizer, so it can neither read nor write text; give token ids")
        return self.tokenizer

    @property
    def dtype(self) -> torch.dtype:
        return self.network.dtype

    @property
    def device(self) -> torch.device:
        return self.network.device

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
        return inputs.compute_logits(
            self.network, self.spec, ids, target=target, keep=keep, target_keep=target_keep, kinds=kinds
        )

    def cache(self, *, rows: int = 1, capacity: int = 64) -> Cache:
        """An empty cache for this model's decoder."""
        return make_cache(self.spec, rows=rows, capacity=capacity, dtype=self.dtype, device=self.device)

    def check(self) -> CheckReport:
        """Run the self-checks on this model."""
        from triform.check.run_checks import check

        return check(self.spec, self.network)

    def stream(self, prompt: Prompt, **settings: Any) -> Iterator[Event]:
        """Events while generating: `for step in model.stream("Once", max_tokens=50): print(step.text, end="")`"""
        from triform.generate.api import stream

        return stream(self, prompt, **settings)

    # --- tasks: keywords are the options of the task, checked by name ------------------------------------------------

    @overload
    def complete(  # type: ignore[overload-overlap]  # a text is a sequence too
        self,
        prompts: str,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        stop: str | Sequence[str] = (),
        seed: int | None = None,
        beams: int | None = None,
        logprobs: int = 0,
        lookup: bool = False,
        rows: int | None = None,
        start: int | None = None,
        pack: bool | None = None,
        **generation: Unpack[GenerationSettings],
    ) -> GeneratedText: ...
    @overload
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
    ) -> AnswerList[GeneratedText]: ...
    def complete(
        self,
        prompts: str | Sequence[Prompt],
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
    ) -> GeneratedText | AnswerList[GeneratedText]:
        """`model.complete("Once upon a time").text`, or a list of answers to a list of prompts.

        `max_tokens` bounds what is written, `stop` are texts it ends before. `temperature`, `top_p` and `top_k` say how
        tokens are drawn, by `seed`; without them as the model's folder says. `beams` searches instead. `n` answers are
        given to each prompt of a list. `logprobs` tells so many likeliest tokens; `lookup` drafts from the text itself.
        Further settings are those of `triform.generate.settings.Settings`.
        """
        from triform.generate import api
        from triform.tasks import get_task
        from triform.tasks.answer_list import AnswerList

        if isinstance(prompts, str) and n != 1:
            raise InputError(
                f"n={n} gives several answers; put the prompt into a list: complete([…], n={n})", field="n"
            )
        options = get_task("complete").options(
            max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, stop=_texts(stop), seed=seed, n=n,
            beams=beams, logprobs=logprobs, lookup=lookup, **generation,
        )  # fmt: skip
        found = AnswerList(
            api.complete(
                self,
                [prompts] if isinstance(prompts, str) else prompts,
                start=start,
                pack=pack,
                rows=rows or api.PARALLEL_SEQUENCES,
                **options.settings(),
            )
        )
        return found[0] if isinstance(prompts, str) else found

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
        """The assistant's next message: `model.chat("Hello").message.content`, or to a list of {role, content}.

        `max_tokens` bounds it, `stop` are texts it ends before; `temperature`, `top_p` and `top_k` say how tokens are
        drawn, by `seed`. Further settings are those of `triform.generate.settings.Settings`.
        """
        from triform.tasks.chat import ChatTask, make_conversation

        task = ChatTask()
        options = task.options(
            max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, stop=_texts(stop), seed=seed,
            **generation,
        )  # fmt: skip
        return next(task.run([make_conversation(messages)], model=self, options=options))

    @overload
    def translate(
        self,
        texts: str,
        *,
        max_tokens: int | None = None,
        beams: int | None = None,
        alignment: bool = False,
        pair: str | None = None,
        from_lang: str | None = None,
        to_lang: str | None = None,
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
        from_lang: str | None = None,
        to_lang: str | None = None,
        **generation: Unpack[SamplingSettings],
    ) -> AnswerList[Translation]: ...
    def translate(
        self,
        texts: str | Texts,
        *,
        max_tokens: int | None = None,
        beams: int | None = None,
        alignment: bool = False,
        pair: str | None = None,
        from_lang: str | None = None,
        to_lang: str | None = None,
        **generation: Unpack[SamplingSettings],
    ) -> Translation | AnswerList[Translation]:
        """Translates a text, or each of several: `model.translate("A lion.", beams=4).text`.

        `max_tokens` bounds each translation; default: as long as the model can write. `beams` searches so many
        candidates at once (1: the likeliest token each time); default: as the model's folder says. `alignment` adds for
        each word where it came from. `from_lang` and `to_lang` are codes of a model of many languages, or `pair` both:
        "en-de". With `temperature`, `top_p` or `top_k` tokens are drawn, by `seed`; `stop` are texts it ends before.
        Further settings are those of `triform.generate.settings.Settings`.
        """
        found: Translation | AnswerList[Translation] = self._answer(
            "translate", texts, max_tokens=max_tokens, beams=beams, alignment=alignment, pair=pair,
            from_lang=from_lang, to_lang=to_lang, **generation,
        )  # fmt: skip
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
    ) -> AnswerList[Summary]: ...
    def summarize(
        self,
        texts: str | Texts,
        *,
        max_tokens: int | None = None,
        beams: int | None = None,
        **generation: Unpack[SamplingSettings],
    ) -> Summary | AnswerList[Summary]:
        """Summarizes a text, or each of several: `model.summarize(article).text`.

        `max_tokens` bounds each summary; `beams` searches so many candidates at once. Defaults are those of the model's
        folder; further settings are those of `triform.generate.settings.Settings`.
        """
        found: Summary | AnswerList[Summary] = self._answer(
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
    ) -> AnswerList[ExtractedAnswer]: ...
    def answer(
        self,
        questions: str | Texts,
        *,
        context: str,
        max_tokens: int | None = None,
        beams: int | None = None,
        **generation: Unpack[SamplingSettings],
    ) -> ExtractedAnswer | AnswerList[ExtractedAnswer]:
        """Answers a question about `context`, or several: `model.answer("Who went?", context="Jack left.").text`.

        A model with a span head cites the context; one that writes has `max_tokens` and `beams`, and the further
        settings of `triform.generate.settings.Settings`.
        """
        found: ExtractedAnswer | AnswerList[ExtractedAnswer] = self._answer(
            "answer", questions, about=[context], max_tokens=max_tokens, beams=beams, **generation
        )
        return found

    @overload
    def classify(
        self,
        texts: str,
        *,
        top: int = 5,
        text_pair: str | None = None,
        labels: Texts = (),
        hypothesis: str | None = None,
        several: bool = False,
    ) -> Classification: ...
    @overload
    def classify(
        self,
        texts: Texts,
        *,
        top: int = 5,
        text_pair: str | Texts | None = None,
        labels: Texts = (),
        hypothesis: str | None = None,
        several: bool = False,
    ) -> AnswerList[Classification]: ...
    @check_options
    def classify(
        self,
        texts: str | Texts,
        *,
        top: int = 5,
        text_pair: str | Texts | None = None,
        labels: Texts = (),
        hypothesis: str | None = None,
        several: bool = False,
    ) -> Classification | AnswerList[Classification]:
        """The labels of a text, or of each of several, with probabilities: `model.classify("A stirring film.").labels`.

        `top` is how many labels are told. `text_pair` is read together with the text, by models that compare two.
        `labels` are your own, for a model for natural-language inference or a decoder: "This is about {}." is the
        `hypothesis`, `several` may hold together.
        """
        from triform.tasks.answer_list import AnswerList
        from triform.tasks.classify import ClassifyTask
        from triform.tasks.text_pairs import match_pairs

        task = ClassifyTask()
        questions = match_pairs([texts] if isinstance(texts, str) else texts, text_pair)
        options = task.options(top=top, labels=tuple(labels), hypothesis=hypothesis, several=several)
        answers = AnswerList(task.run(questions, model=self, options=options))
        return answers[0] if isinstance(texts, str) else answers

    @overload
    def tag(self, texts: str) -> TaggedText: ...
    @overload
    def tag(self, texts: Texts) -> AnswerList[TaggedText]: ...
    @check_options
    def tag(self, texts: str | Texts) -> TaggedText | AnswerList[TaggedText]:
        """`model.tag("Jack went to Rome.").entities`"""
        found: TaggedText | AnswerList[TaggedText] = self._answer("tag", texts)
        return found

    @overload
    def fill(self, texts: str, *, k: int = 5) -> FilledText: ...
    @overload
    def fill(self, texts: Texts, *, k: int = 5) -> AnswerList[FilledText]: ...
    @check_options
    def fill(self, texts: str | Texts, *, k: int = 5) -> FilledText | AnswerList[FilledText]:
        """The `k` likeliest tokens for each mask: `model.fill("the [MASK] sat").masks[0]`"""
        found: FilledText | AnswerList[FilledText] = self._answer("fill", texts, k=k)
        return found

    @check_options
    def embed(
        self,
        texts: str | Texts,
        *,
        windows: bool = False,
        role: Role = "text",
        prompt: str | None = None,
        dimensions: int | None = None,
    ) -> Tensor:
        """The vector [D] of one text, [N, D] of several: `model.embed(["a lion", "a mole"])`.

        Of a text that is too long, only the beginning is used; with `windows`, all of it, as the mean over windows.
        `role` ("query", "document") chooses the folder's prompt for it, `prompt` the one of that name. `dimensions`
        shortens each vector, as Matryoshka models are made for.
        """
        from triform.tasks.embed import EmbedTask

        several = [texts] if isinstance(texts, str) else texts
        vectors = EmbedTask().compute_vectors(
            several, model=self, windows=windows, role=role, prompt=prompt, dimensions=dimensions
        )
        return vectors[0] if isinstance(texts, str) else vectors

    @overload
    def search(self, queries: str, **options: Unpack[SearchSettings]) -> SearchHits: ...
    @overload
    def search(self, queries: Texts, **options: Unpack[SearchSettings]) -> AnswerList[SearchHits]: ...
    @check_options
    def search(
        self,
        queries: str | Texts,
        *,
        index: Index | str | Path,
        k: int = 10,
        mode: SearchMode = "hybrid",
        files: tuple[str, ...] = (),
        where: tuple[str, ...] = (),
        reranker: Model | None = None,
    ) -> SearchHits | AnswerList[SearchHits]:
        """The `k` best passages of an index: `model.search("lions", index="docs.index").hits`, best first.

        `index` is an `Index` or its folder. `mode`: by vectors and keywords together ("hybrid"), or by "vector" or
        "keyword" alone. `files` are names or paths, * for anything; `where` are values of kept columns: "author=me". A
        `reranker`, a model, orders the best passages again.
        """
        found: SearchHits | AnswerList[SearchHits] = self._answer(
            "search", queries, index=index, k=k, mode=mode, files=files, where=where, reranker=reranker
        )
        return found

    @check_options
    def rerank(self, query: str, passages: Texts, *, top: int | None = None) -> Reranking:
        """`model.rerank("Who digs?", ["A cat sat.", "A mole dug."]).ranked[0].passage`, highest score first.

        `top` keeps so many of the best.
        """
        found: Reranking = self._answer("rerank", query, about=passages, top=top)
        return found

    @overload
    def decide(
        self,
        texts: str,
        *,
        question: str | None = None,
        choices: Texts = (),
        levels: Texts = (),
        uncalibrated: bool = False,
    ) -> Decision: ...
    @overload
    def decide(
        self,
        texts: Texts,
        *,
        question: str | None = None,
        choices: Texts = (),
        levels: Texts = (),
        uncalibrated: bool = False,
    ) -> AnswerList[Decision]: ...
    @check_options
    def decide(
        self,
        texts: str | Texts,
        *,
        question: str | None = None,
        choices: Texts = (),
        levels: Texts = (),
        uncalibrated: bool = False,
    ) -> Decision | AnswerList[Decision]:
        """`model.decide("What is the capital of France?", choices=["Paris", "Rome"]).choice`, without writing text.

        `question` is asked about each text; `choices` are the answers, or `levels`, which are a scale; without them the
        answer is yes or no. `uncalibrated` does not divide out how likely each answer is anyway.
        """
        found: Decision | AnswerList[Decision] = self._answer(
            "decide", texts, question=question, choices=tuple(choices), levels=tuple(levels), uncalibrated=uncalibrated
        )
        return found

    @overload
    def score(self, texts: str, *, source: str | None = None, totals: bool = False) -> TextScore: ...
    @overload
    def score(
        self, texts: Texts, *, source: str | Texts | None = None, totals: bool = False
    ) -> AnswerList[TextScore]: ...
    @check_options
    def score(
        self, texts: str | Texts, *, source: str | Texts | None = None, totals: bool = False
    ) -> TextScore | AnswerList[TextScore]:
        """`model.score("A lion sleeps.").perplexity`; with `source`, what stands before a text or what it translates.

        Several texts have one source, or each its own. `totals` leaves the log-probabilities of single tokens out.
        """
        from triform.tasks.answer_list import AnswerList
        from triform.tasks.score import ScoreTask, match_sources

        task = ScoreTask()
        questions = match_sources([texts] if isinstance(texts, str) else texts, source)
        answers = AnswerList(task.run(questions, model=self, options=task.options(totals=totals)))
        return answers[0] if isinstance(texts, str) else answers

    @overload
    def run(self, texts: str, **options: Any) -> Reply: ...
    @overload
    def run(self, texts: Texts, **options: Any) -> AnswerList[Reply]: ...
    def run(self, texts: str | Texts, **options: Any) -> Reply | AnswerList[Reply]:
        """The task this model was trained for, else what its head supports."""
        from triform.tasks.task_of_model import own_task

        task = own_task(self)
        task.check_takes_texts()
        found: Reply | AnswerList[Reply] = self._answer(task.name, texts, **options)
        return found

    def _answer(self, name: str, texts: str | Texts, *, about: Sequence[str] | None = None, **options: Any) -> Any:
        """One answer to a text, a list of answers to several; `about` are other texts that they are about."""
        from triform.tasks import get_task
        from triform.tasks.answer_list import AnswerList

        task = get_task(name)
        several = [texts] if isinstance(texts, str) else list(texts)
        questions = [task.question_of(text) if about is None else task.question_about(text, about) for text in several]
        answers = AnswerList(task.run(questions, model=self, options=task.options(**options)))
        return answers[0] if isinstance(texts, str) else answers

    def with_weights(self, kind: str) -> Model:
        """The same model with another kind of weights: "float32", "bfloat16", "q8" or "q4"."""
        from triform.core.change_weights import change_weights

        return self.replace(network=change_weights(self.network, self.spec, kind=weight_kind_named(kind)))

    def look(self, text: str | Sequence[int], target: str | Sequence[int] | None = None) -> View:
        """Every tensor of one forward pass: `q, k, v = model.look("the fat ginger cat").qkv(3)`"""
        from triform.inspect.view import look

        view = look(self, text, target, start=self.generation.first)
        if isinstance(text, str) and (target is None or isinstance(target, str)):
            return dataclasses.replace(view, frame=lambda: self.page(text, target or "")._repr_html_())
        return view

    def page(self, text: str, target: str = "") -> PageFrame:
        """The page of this run: a notebook shows it in one self-contained frame, `.save("page.html")` writes it."""
        from triform.page.notebook import make_page_frame

        return make_page_frame(self, text, target)

    def without_heads(self, heads: Iterable[tuple[int, int]]) -> AbstractContextManager[None]:
        """`with model.without_heads({(0, 1), (3, 2)}): …` switches attention heads (layer, head) off."""
        from triform.inspect.interventions import without_heads

        return without_heads(self.network, set(heads))

    def with_adapter(self, *folders: str | Path) -> Model:
        """The model with these LoRA adapters, added together; its weights are shared with the one without."""
        from triform.weights.adapters import load_adapters

        return load_adapters(self, folders)

    def with_draft(self, draft: Model) -> Model:
        """The same model, with a smaller one of the same tokenizer that drafts tokens: faster, the same answers."""
        from triform.generate.draft_model import check_draft

        check_draft(draft, self)
        return self.replace(draft=draft, own_folders=self.own_folders, files_hash=self.files_hash)

    def save_adapter(self, folder: str | Path, *, base: str = "") -> None:
        """Only what the adapters add, in PEFT's format; `base` is the name of the model they belong to."""
        from triform.weights.adapters import save_adapter

        save_adapter(folder, model=self, base=base)

    # --- research: many texts, interventions, sweeps ----------------------------------------------------------------

    def activations(
        self,
        texts: Iterable[str | Sequence[int] | None],
        where: str,
        *,
        position: Pooled = -1,
        targets: Iterable[str | Sequence[int]] | None = None,
        out: str | Path | None = None,
        resume: bool = False,
        progress: Callable[[int], None] = lambda count: None,
    ) -> Activations:
        """One module's output for many texts, in their order: `model.activations(texts, "decoder.blocks.3")`, [N, D].

        `position` is a token's number (−1: the last), "mean" or "all"; `out` streams the rows to a safetensors file.
        """
        from triform.inspect.activations import collect_activations

        return collect_activations(
            self, texts, where, position=position, targets=targets, out=out, resume=resume, progress=progress
        )

    def patched(self, *changes: Intervention | str, sources: ChangeSources | None = None) -> Model:
        """This model with interventions, as a model: `model.patched("off L3H2", AddVector(place, vector, 4.0))`."""
        from triform.inspect.patched_model import make_patched_model

        return make_patched_model(self, *changes, sources=sources)

    def sweep(
        self,
        texts: str | Sequence[Any],
        targets: str | Sequence[Any] | None = None,
        *,
        over: Over | Sequence[str] = "heads",
        change: MakeChange | None = None,
        source: str | Sequence[int] | None = None,
        source_target: str | Sequence[int] | None = None,
        measure: Measure | None = None,
        position: int | None = None,
        kind: AttentionKind = "self",
        stack: StackName | None = None,
        component: str = "stream",
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> LabelledArray:
        """One change at every head, sublayer or position, and what each does to a measure of the answer: a heat map.

        By default each location is switched off; with a `source` text it is patched from there.
        """
        from triform.inspect.sweeps import sweep

        return sweep(
            self, texts, targets, over=over, change=change, source=source, source_target=source_target,
            measure=measure, position=position, kind=kind, stack=stack, component=component, progress=progress,
        )  # fmt: skip

    def save(self, folder: str | Path, *, dtype: str | torch.dtype | None = None, overwrite: bool = False) -> None:
        """A model folder in the Hugging Face layout; written atomically; adapters are merged into its weights.

        A folder with other contents is replaced only with `overwrite`; the one this model was loaded from or saved to
        before is replaced without it.
        """
        from triform.weights import model_folder

        place = Path(folder).resolve()
        if not overwrite and place not in self.own_folders:
            model_folder.check_free(folder)
        model_folder.write(folder, model=self, dtype=to_dtype(dtype))
        self.own_folders.add(place)


def build(
    spec: ModelSpec,
    *,
    seed: int = 0,
    dtype: str | torch.dtype | None = None,
    device: str | None = None,
    weights: str = AUTO,
) -> Model:
    """A model with initial, untrained weights; the same seed gives the same weights. Unless asked otherwise: float32 on
    the CPU. `device`, `dtype` and `weights` as for `load`."""
    where, kind = find_device(device), to_dtype(dtype)
    check_weight_kind(weights, device=where, dtype=kind)
    network = initial_weights.build_network(spec, seed=seed, dtype=kind or torch.float32, device=where)
    model = Model(spec=spec, network=network)
    return model if weights in (AUTO, "float32") else model.with_weights(weights)
