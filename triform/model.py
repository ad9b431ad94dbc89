"""`Model`: spec, weights, tokenizer and settings of a model, with short methods for everything it can do.

A value: loading a folder returns one, saving takes one, training and importing create new ones with `replace`.
Its methods call the packages that do the work, imported on the first call.
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

    def complete(self, prompts: Sequence[Prompt], **settings: Any) -> list[Answer]:
        """Complete answers to a batch of prompts; `beams=4`: beam search, `n=3`: three answers per prompt."""
        from triform.generate.api import complete

        return complete(self, prompts, **settings)

    def chat(self, messages: str | Sequence[Mapping[str, str]], **settings: Any) -> Spoken:
        """The next message of the assistant: `model.chat("Hello").message.content`, or of a list of {role, content}."""
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
        """The task this model was trained for, else one that fits its head."""
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

        Of a text that is too long, only the beginning is used; with `windows` all of it, as the mean over windows.
        `role` ("query", "document") chooses the folder's prompt for it.
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
        """One answer for one text, a list of answers for several."""
        from triform.tasks import named

        several = [questions] if isinstance(questions, str) else list(questions)
        answers = list(named(task).run(several, model=self, **settings))
        return answers[0] if isinstance(questions, str) else answers

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
