"""Chat: the assistant's next message of a conversation; trained on its messages alone, evaluated by perplexity."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from triform.data.columns import Layout
from triform.data.formats import get_ending, list_formats
from triform.data.line_reader import Fault
from triform.data.rows import ChatRow as Conversation
from triform.data.rows import DataRow, Message, TextRow
from triform.errors import InputError
from triform.generate.events import Finish
from triform.model import Model
from triform.spec import Form, ModelSpec
from triform.tasks.complete import CompleteTask, SamplingOptions
from triform.tasks.perplexity import compute_perplexity, score_compression
from triform.tasks.task import CannotDo, Reply, Scores
from triform.tasks.text_to_text import GeneratingTask
from triform.text.chat_template import ChatTemplate
from triform.train.examples import ExampleList, Examples, TokenExample
from triform.train.objectives import Objective
from triform.train.run_config import Config
from triform.train.token_objectives import NextToken

Messages: TypeAlias = tuple[Message, ...]

# For models that bring none: a line a turn, and an end behind every answer.
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}"
    "{% if message.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


class ChatReply(Reply, frozen=True):
    """The model's message in a conversation."""

    message: Message
    finish: Finish
    logprob: float

    def __str__(self) -> str:
        return self.message.content

    def columns(self) -> dict[str, object]:
        return {"text": self.message.content, "finish": self.finish, "logprob": self.logprob}


class ChatTask(GeneratingTask[Conversation, Messages, ChatReply]):
    """Chat with MODEL. With a MESSAGE it is answered once; otherwise a conversation, one line per turn. In a file
    each row, a conversation or a message, is answered once.

    \b
    Examples:
      triform chat smollm2
      triform chat smollm2 "What is the capital of France?" --temperature 0
      triform chat smollm2 --file conversations.jsonl --json --out answers.jsonl
    """

    name = "chat"
    forms = ("decoder",)
    kind = Conversation
    needs = "a chat template"
    answer_type = ChatReply
    input_rows = (Conversation, TextRow)
    example = {"messages": "Who sat on the mat?"}  # noqa: RUF012
    cuts = True

    class Options(SamplingOptions, frozen=True, kw_only=True): ...

    def question_of(self, text: str) -> Messages:
        return make_conversation(text)

    def question_of_row(self, row: Any) -> Messages:
        return row.messages if isinstance(row, Conversation) else make_conversation(row.text)

    def row_kind(self, path: Path, layout: Layout) -> type[DataRow]:
        """Whole conversations, unless a column with single messages is named, or the format cannot hold them."""
        known = list_formats(Conversation)
        keys = {each.key for each in known.values()}
        holds = get_ending(path) in known if layout.format is None else layout.format in keys
        return Conversation if "messages" in layout.columns or ("text" not in layout.columns and holds) else TextRow

    # --- training ---------------------------------------------------------------------------------------------------

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        return CompleteTask().spec(base, labels=labels)

    def recipe(self, form: Form, *, fresh: bool) -> Config:
        return CompleteTask().recipe(form, fresh=fresh)

    def examples(self, rows: Sequence[Conversation], *, model: Model) -> Examples[Any]:
        """Conversations that do not fit lose their end; those without an answer teach nothing and are left out."""
        return as_examples(mark_answers(find_answered(rows), model=model))

    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]:
        return NextToken(smoothing=config.label_smoothing)

    def finish_model(self, rows: Sequence[Conversation], *, model: Model) -> Model:
        return model.replace(template=get_template(model))

    def question(self, row: Conversation) -> Messages:
        """All before the last answer."""
        last = max((at for at, one in enumerate(row.messages) if one.role == "assistant"), default=len(row.messages))
        return row.messages[:last]

    def run(
        self, questions: Sequence[Messages], *, model: Model, options: Options | None = None
    ) -> Iterator[ChatReply]:
        self.check(model)
        texts = get_template(model).render_many([as_dicts(messages) for messages in questions])
        prompts = [model.require_tokenizer().encode_conversation(text).ids for text in texts]
        for found in CompleteTask().run(prompts, model=model, options=options):
            said = Message("assistant", found.text.strip())
            yield ChatReply(message=said, finish=found.finish, logprob=found.logprob, unknown=found.unknown)

    def evaluate(self, rows: Sequence[Conversation], *, model: Model, options: Any = None) -> Scores:
        """The answers' own tokens; of conversations that do not fit, what is left of their answers."""
        marked = [drop_special(each, model=model) for each in mark_answers(find_answered(rows), model=model)]
        if not marked:
            raise InputError(f"none of the {len(rows)} conversations has an answer of the assistant")
        return compute_perplexity(
            as_examples(marked),
            objective=NextToken(),
            model=model,
            rows=len(marked),
            bytes_of_text=sum(len(model.require_tokenizer().decode(get_learned_ids(each)).encode()) for each in marked),
            signature="the assistant's own tokens, behind all that was said before; no special tokens",
        )

    def score(self, answers: Sequence[ChatReply], rows: Sequence[Conversation]) -> Scores:
        raise CannotDo("an answer in a conversation has no one right form; `evaluate` asks how likely those given are")

    def baselines(self, rows: Sequence[Conversation], *, train: Sequence[Conversation]) -> Mapping[str, Scores]:
        return {"xz": score_compression(list_answers(rows), before=list_answers(train))}


def make_conversation(said: str | Sequence[Mapping[str, str]]) -> Messages:
    """What has been said so far; a lone text is said by the user."""
    messages = [{"role": "user", "content": said}] if isinstance(said, str) else list(said)
    try:
        return Conversation.of({"messages": messages}).messages
    except Fault as fault:
        raise InputError(f"this is no conversation: {fault}") from None


def find_answered(rows: Sequence[Conversation]) -> list[Messages]:
    """The conversations in which the assistant says something."""
    return [row.messages for row in rows if any(one.role == "assistant" for one in row.messages)]


def list_answers(rows: Sequence[Conversation]) -> list[str]:
    return [one.content for row in rows for one in row.messages if one.role == "assistant"]


def get_template(model: Model) -> ChatTemplate:
    """Each has a process of its own: keep it while there is something to render."""
    return model.template or ChatTemplate(TEMPLATE, special=model.require_tokenizer().special)


def as_dicts(messages: Messages) -> list[dict[str, str]]:
    return [{"role": one.role, "content": one.content} for one in messages]


def mark_answers(conversations: Sequence[Messages], *, model: Model) -> list[TokenExample]:
    """Whole conversations, with the tokens that the assistant said to be learned."""
    template, most = get_template(model), model.spec.context + 1
    answers = [
        (number, at)
        for number, messages in enumerate(conversations)
        for at, one in enumerate(messages)
        if one.role == "assistant"
    ]
    before = template.render_many([as_dicts(conversations[number][:at]) for number, at in answers])
    with_answer = template.render_many(
        [as_dicts(conversations[number][: at + 1]) for number, at in answers], prompt=False
    )
    said: list[list[tuple[int, int]]] = [[] for _ in conversations]
    texts = [""] * len(conversations)
    for (number, _), prompt, text in zip(answers, before, with_answer, strict=True):
        if not text.startswith(prompt):
            raise InputError("this chat template rewrites what was said before, so answers cannot be separated")
        said[number].append((len(prompt), len(text)))
        texts[number] = text
    encodings = map(model.require_tokenizer().encode_conversation, texts)
    return [
        TokenExample(encoding.ids[:most], [is_within(token, spans) for token in encoding.offsets[:most]])
        for encoding, spans in zip(encodings, said, strict=True)
    ]


def as_examples(marked: Sequence[TokenExample]) -> Examples[TokenExample]:
    return ExampleList(marked, lengths=[len(each.ids) for each in marked])


def get_learned_ids(tokens: TokenExample) -> list[int]:
    """The ids that the assistant said."""
    return np.asarray(tokens.ids)[np.asarray(tokens.learn, bool)].tolist()


def drop_special(tokens: TokenExample, *, model: Model) -> TokenExample:
    """Special tokens are read, but not counted: they have no bytes."""
    special = np.isin(np.asarray(tokens.ids), list(model.require_tokenizer().special_ids))
    return TokenExample(tokens.ids, np.asarray(tokens.learn, bool) & ~special)


def is_within(token: tuple[int, int], spans: Sequence[tuple[int, int]]) -> bool:
    start, end = token
    return any(first < end and start < last for first, last in spans)
