"""`Model`: what a model is, its weights, how it reads and writes text; and the short way to everything it does.

A value: reading a folder returns one, writing a folder takes one, training and importing make new ones with `replace`.
Its methods hand over to the rooms that do the work, imported when they are called.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

    from triform.check.run_checks import Report
    from triform.core.cache import Cache
    from triform.core.inputs import Ids, Keep
    from triform.generate.api import Answer, Prompt
    from triform.generate.events import Event
    from triform.inspect.view import View
    from triform.tasks.chat import Spoken
    from triform.tasks.vector_index import Index
    from triform.text.chat_template import ChatTemplate
    from triform.text.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """What a model is (`spec`), its numbers (`network`), how it reads and writes text (`tokenizer`, or None), and all
    that its folder says of it. Files of the folder that we do not model are kept in `config` and `others`."""

    spec: ModelSpec
    network: Form
    tokenizer: Tokenizer | None = None
    template: ChatTemplate | None = None
    labels: tuple[str, ...] = ()  # of a head that classifies or tags
    generation: Generation = field(default_factory=Generation)
    pooling: Pooling | None = None  # of a sentence-transformers folder
    config: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)  # the rest of generation_config.json
    left_aside: tuple[str, ...] = ()  # tensors in the files that this model does not use
    memo: dict[str, Any] = field(default_factory=dict)  # what the tasks it was trained for have to remember
    own_folders: set[Path] = field(default_factory=set)  # read from there, or saved there before

    def __repr__(self) -> str:
        return f"Model({self.spec.form}, {parameters(self.spec):,} parameters, {self.dtype})"

    def replace(self, **changes: Any) -> Model:
        """Another model, which differs in these fields; no folder is its own yet."""
        return dataclasses.replace(self, **{"own_folders": set(), **changes})

    def require_tokenizer(self) -> Tokenizer:
        """Its tokenizer, for callers that cannot do without."""
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
        """Scores for every position, [B, T, V]; one row of scores a text, [B, labels], where the head reads one token.

        `keep` is True at real tokens. Padding may stand anywhere, is never computed on, and its scores are 0.
        """
        return inputs.logits(
            self.network, self.spec, ids, target=target, keep=keep, target_keep=target_keep, kinds=kinds
        )

    def cache(self, *, rows: int = 1, capacity: int = 64) -> Cache:
        """An empty cache for this model's decoder."""
        return cache_for(self.spec, rows=rows, capacity=capacity, dtype=self.dtype, device=self.device)

    def check(self) -> Report:
        """The table of proofs on this very model."""
        from triform.check.run_checks import check

        return check(self.spec, self.network)

    def stream(self, prompt: Prompt, **settings: Any) -> Iterator[Event]:
        """Events as they come: `for step in model.stream("Once", max_tokens=50): print(step.text, end="")`"""
        from triform.generate.api import stream

        return stream(self, prompt, **settings)

    def complete(self, prompts: Sequence[Prompt], **settings: Any) -> list[Answer]:
        """Whole answers to a batch of prompts; `beams=4` searches, `n=3` gives three to each."""
        from triform.generate.api import complete

        return complete(self, prompts, **settings)

    def chat(self, messages: str | Sequence[Mapping[str, str]], **settings: Any) -> Spoken:
        """What the assistant says next: `model.chat("Hello").message.content`, or to a list of {role, content}."""
        from triform.tasks.chat import Chat, conversation

        return next(Chat().run([conversation(messages)], model=self, **settings))

    def fill(self, texts: str | Sequence[str], *, k: int = 5) -> Any:
        """The k likeliest tokens for each mask: `model.fill("the [MASK] sat").masks[0]`"""
        return self._answers("fill", texts, k=k)

    def translate(self, texts: str | Sequence[str], **settings: Any) -> Any:
        """`model.translate("A lion.", beams=4).text`; `alignment=True` shows where each word came from."""
        return self._answers("translate", texts, **settings)

    def summarize(self, texts: str | Sequence[str], **settings: Any) -> Any:
        """`model.summarize(article).text`"""
        return self._answers("summarize", texts, **settings)

    def run(self, texts: str | Sequence[str], **settings: Any) -> Any:
        """Whatever this model was trained for, else what its head can do."""
        from triform.tasks.task_of_model import own_task, question_of

        task = own_task(self)
        asked = [question_of(task, text) for text in ([texts] if isinstance(texts, str) else texts)]
        answers = self._answers(task.name, asked, **settings)
        return answers[0] if isinstance(texts, str) else answers

    def classify(self, texts: str | Sequence[str], **settings: Any) -> Any:
        """`model.classify("A stirring film.").labels`"""
        return self._answers("classify", texts, **settings)

    def tag(self, texts: str | Sequence[str]) -> Any:
        """`model.tag("Jack went to Rome.").entities`"""
        return self._answers("tag", texts)

    def answer(self, questions: str | Sequence[str], *, context: str, **settings: Any) -> Any:
        """`model.answer("Who went?", context="Jack went to Rome.").text`"""
        from triform.tasks.answer_spans import Asked

        asked = [Asked(each, context) for each in ([questions] if isinstance(questions, str) else questions)]
        answers = self._answers("answer", asked, **settings)
        return answers[0] if isinstance(questions, str) else answers

    def embed(self, texts: str | Sequence[str], *, windows: bool = False, role: Role = "text") -> Tensor:
        """[D] of one text, [N, D] of several.

        Of a text longer than the model reads, the beginning counts; with `windows` all of it, as the mean over windows.
        `role` ("query", "document") chooses the prompt that the folder has for it.
        """
        from triform.tasks.embed import Embed

        several = [texts] if isinstance(texts, str) else texts
        vectors = Embed().vectors(several, model=self, windows=windows, role=role)
        return vectors[0] if isinstance(texts, str) else vectors

    def search(self, queries: str | Sequence[str], *, index: Index | str | Path, k: int = 10) -> Any:
        """`model.search("lions", index="docs.index").hits`, nearest first."""
        from triform.tasks.vector_index import Index, opened

        found = index if isinstance(index, Index) else opened(index, model=self)
        return self._answers("search", queries, index=found, k=k)

    def _answers(self, task: str, questions: Any, **settings: Any) -> Any:
        """One answer to a text, a list of answers to several."""
        from triform.tasks import named

        several = [questions] if isinstance(questions, str) else list(questions)
        answers = list(named(task).run(several, model=self, **settings))
        return answers[0] if isinstance(questions, str) else answers

    def look(self, text: str | Sequence[int], target: str | Sequence[int] | None = None) -> View:
        """Every number inside one pass: `q, k, v = model.look("the fat ginger cat").qkv(3)`"""
        from triform.inspect.view import look

        return look(self, text, target, start=self.generation.first)

    def without_heads(self, heads: Iterable[tuple[int, int]]) -> AbstractContextManager[None]:
        """`with model.without_heads({(0, 1), (3, 2)}): …` switches attention heads (layer, head) off."""
        from triform.inspect.interventions import without_heads

        return without_heads(self.network, set(heads))

    def save(self, folder: str | Path, *, dtype: str | torch.dtype | None = None, overwrite: bool = False) -> None:
        """A model folder in the Hugging Face layout; it appears whole or not at all.

        A folder that holds something else is not replaced unless `overwrite`. The one this model was loaded from, or
        saved to before, is its own: saving a model again is no loss of another.
        """
        from triform.weights import model_folder

        place = Path(folder).resolve()
        if not overwrite and place not in self.own_folders:
            model_folder.check_free(folder)
        model_folder.write(folder, model=self, dtype=dtype_named(dtype))
        self.own_folders.add(place)


def build(spec: ModelSpec, *, seed: int = 0, dtype: str | torch.dtype = torch.float32, device: str = "cpu") -> Model:
    """A model with its initial, untrained weights; the same seed gives the same numbers."""
    network = initial_weights.build(spec, seed=seed, dtype=dtype_named(dtype) or torch.float32, device=device)
    return Model(spec=spec, network=network)
