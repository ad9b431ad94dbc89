"""The table of tasks: where each is, what it is in one line, and which models support it.

Knows no torch: a task's file is imported when it is needed, and `triform models` needs none of them.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from triform.errors import UnknownName
from triform.spec import Classify, ModelSpec, NoHead, Own, Pooled, Span, Tag, Tied, Transformed, is_tag

if TYPE_CHECKING:
    from triform.tasks.task import Task

__all__ = [
    "PREFERRED",
    "TASKS",
    "ModelFacts",
    "TaskEntry",
    "answer_list",
    "chat",
    "classify",
    "complete",
    "embed",
    "encoder_batches",
    "fill",
    "generates_answers",
    "generates_text",
    "get_task",
    "grounded_answer",
    "index_folder",
    "is_trained_for",
    "labels_texts",
    "linear_probe",
    "makes_vectors",
    "options",
    "own_task_of",
    "postgres_store",
    "predicts_tokens",
    "score",
    "scores_pairs",
    "search",
    "search_ranking",
    "supports",
    "tag",
    "tag_and_classify",
    "task",
    "task_of_model",
    "task_specific_params",
    "tasks_of",
    "text_pairs",
    "text_to_text",
    "text_vectors",
    "translate",
    "vector_index",
]


class ModelFacts(Protocol):
    """What decides which tasks a model supports. A `Model` has it, and a model folder that was not read."""

    @property
    def spec(self) -> ModelSpec: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def memo(self) -> Mapping[str, Any]: ...
    @property
    def tokenizer(self) -> object | None: ...
    @property
    def template(self) -> object | None: ...
    @property
    def pooling(self) -> object | None: ...


# --- which models support what --------------------------------------------------------------------------------------


def generates_text(model: ModelFacts) -> bool:
    """A decoder with a language-model head, in either form that has one."""
    return model.spec.decoder is not None and isinstance(model.spec.head, Own | Tied | Transformed)


def is_trained_for(model: ModelFacts, task: str) -> bool:
    return model.memo.get("task") == task


def generates_answers(model: ModelFacts, task: str) -> bool:
    """An encoder–decoder answers; a decoder continues any text, and answers only where it was trained for the task."""
    return generates_text(model) and (model.spec.form == "encoder-decoder" or is_trained_for(model, task))


def makes_vectors(model: ModelFacts) -> bool:
    """An encoder; a decoder only where its folder says how it pools."""
    if model.spec.form == "decoder":
        return model.pooling is not None and isinstance(model.spec.head, NoHead | Own | Tied)
    return model.spec.form == "encoder" and isinstance(model.spec.head, NoHead | Pooled | Transformed)


def predicts_tokens(model: ModelFacts) -> bool:
    """A language-model head: of a decoder the next token, of an encoder the masked ones."""
    fills = model.spec.form == "encoder" and isinstance(model.spec.head, Transformed)
    return fills or generates_text(model)


def labels_texts(model: ModelFacts) -> bool:
    """A head for texts; or one for tokens that has labels which are no tags, read at the first token."""
    head = model.spec.head
    return isinstance(head, Classify) or (isinstance(head, Tag) and not all(map(is_tag, model.labels)))


def scores_pairs(model: ModelFacts) -> bool:
    """A cross-encoder: one output, and not trained here on labels."""
    head = model.spec.head
    one_output = isinstance(head, Classify) and head.labels == 1 and "several" not in model.memo
    return one_output and model.spec.form == "encoder"


class TaskEntry(NamedTuple):
    """`place` is "module:class"; `summary` the line in `triform --help`, and of the HTTP route."""

    place: str
    summary: str
    supports: Callable[[ModelFacts], bool]
    reads_ids: bool = False  # token ids will do: the model needs no tokenizer
    is_trained: bool = True  # False: it only runs, on models that are trained for other tasks


TASKS: dict[str, TaskEntry] = {
    "complete": TaskEntry(
        "triform.tasks.complete:CompleteTask", "Continue a text (generate).", generates_text, reads_ids=True
    ),
    "chat": TaskEntry(
        "triform.tasks.chat:ChatTask",
        "Chat with a model.",
        lambda model: generates_text(model) and (model.template is not None or is_trained_for(model, "chat")),
    ),
    "translate": TaskEntry(
        "triform.tasks.translate:TranslateTask", "Translate texts.", lambda model: generates_answers(model, "translate")
    ),
    "summarize": TaskEntry(
        "triform.tasks.summarize:SummarizeTask", "Summarize texts.", lambda model: generates_answers(model, "summarize")
    ),
    "answer": TaskEntry(
        "triform.tasks.answer:AnswerTask",
        "Answer questions about a text.",
        lambda model: isinstance(model.spec.head, Span) or generates_answers(model, "answer"),
    ),
    "classify": TaskEntry("triform.tasks.classify:ClassifyTask", "Classify texts.", labels_texts),
    "tag": TaskEntry(
        "triform.tasks.tag:TagTask",
        "Find named entities.",
        lambda model: isinstance(model.spec.head, Tag) and any(map(is_tag, model.labels)),
    ),
    "fill": TaskEntry(
        "triform.tasks.fill:FillTask",
        "Predict masked words.",
        lambda model: model.spec.form == "encoder" and isinstance(model.spec.head, Transformed),
    ),
    "embed": TaskEntry("triform.tasks.embed:EmbedTask", "Compute embeddings.", makes_vectors),
    "search": TaskEntry("triform.tasks.search:SearchTask", "Search an index for the nearest passages.", makes_vectors),
    "rerank": TaskEntry(
        "triform.tasks.rerank:RerankTask",
        "Order passages by relevance to a query.",
        lambda model: scores_pairs(model) or makes_vectors(model),
    ),
    "decide": TaskEntry(
        "triform.tasks.decide:DecideTask",
        "Decide between given answers.",
        lambda model: model.spec.form == "decoder" and generates_text(model),
        is_trained=False,
    ),
    "score": TaskEntry(
        "triform.tasks.score:ScoreTask",
        "Score given texts, or pairs of texts.",
        lambda model: predicts_tokens(model) or scores_pairs(model) or makes_vectors(model),
        is_trained=False,
    ),
}


def get_task(name: str) -> "Task[Any, Any, Any]":
    """The task of this name."""
    if name not in TASKS:
        raise UnknownName("task", name, TASKS)
    module, kind = TASKS[name].place.split(":")
    task: Task[Any, Any, Any] = getattr(import_module(module), kind)()
    return task


def supports(name: str, model: ModelFacts) -> bool:
    """Whether this model can be run on the task."""
    entry = TASKS[name]
    return (entry.reads_ids or model.tokenizer is not None) and entry.supports(model)


def tasks_of(model: ModelFacts) -> tuple[str, ...]:
    """What this model can do, in the order of the table."""
    return tuple(name for name in TASKS if supports(name, model))


# A head that can do several things does the first of these, unless its folder says otherwise.
PREFERRED = ("classify", "tag", "fill", "translate", "embed", "complete")


def own_task_of(model: ModelFacts) -> str | None:
    """The task a model was trained for, which its folder remembers; else the first that it supports."""
    trained_for = model.memo.get("task")
    if isinstance(trained_for, str) and trained_for in TASKS:
        return trained_for
    chats = ("chat",) if model.template is not None else ()
    embeds = ("embed",) if model.pooling is not None else ()
    return next((name for name in (*embeds, *chats, *PREFERRED, *TASKS) if supports(name, model)), None)
