"""Chat: a conversation, and what the assistant says next; only answers are learned, and judged by their perplexity."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from triform.data.rows import Chat as Conversation
from triform.data.rows import Message
from triform.errors import InputError
from triform.generate.events import Finish
from triform.spec import Form, ModelSpec
from triform.tasks.complete import Complete
from triform.tasks.likelihood import perplexity
from triform.tasks.task import CannotDo, Reply, Scores, Task
from triform.tasks.writing import words_of
from triform.text.chat import ChatTemplate
from triform.train.config import Config
from triform.train.examples import Examples, Listed, Tokens
from triform.train.language import NextToken
from triform.train.objectives import Objective
from triform.weights.folder import Loaded

Messages: TypeAlias = tuple[Message, ...]

# For models that bring none: a line a turn, and an end behind every answer.
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}"
    "{% if message.role == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


class Spoken(Reply, frozen=True):
    message: Message
    finish: Finish
    logprob: float

    def __str__(self) -> str:
        return self.message.content


class Chat(Task[Conversation, Messages, Spoken]):
    name = "chat"
    forms = ("decoder",)
    kind = Conversation

    def can(self, spec: ModelSpec) -> bool:
        return Complete().can(spec)

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        return Complete().spec(base, labels=labels)

    def fits(self, model: Loaded) -> bool:
        """A decoder that was not taught to converse only goes on."""
        return self.can(model.spec) and (model.template is not None or model.memo.get("task") == self.name)

    def recipe(self, form: Form, *, fresh: bool) -> Config:
        return Complete().recipe(form, fresh=fresh)

    def examples(self, rows: Sequence[Conversation], *, model: Loaded) -> Examples[Any]:
        """Conversations that do not fit lose their end."""
        listed = [answers_marked(row.messages, model=model) for row in rows]
        return Listed(listed, lengths=[len(each.ids) for each in listed])

    def objective(self, *, model: Loaded, config: Config) -> Objective[Any, Any]:
        return NextToken(smoothing=config.label_smoothing)

    def finished(self, rows: Sequence[Conversation], *, model: Loaded) -> Loaded:
        return model._replace(template=template_of(model))

    def question(self, row: Conversation) -> Messages:
        """All before the last answer."""
        last = max((at for at, one in enumerate(row.messages) if one.role == "assistant"), default=len(row.messages))
        return row.messages[:last]

    def run(self, questions: Sequence[Messages], *, model: Loaded, **settings: Any) -> Iterator[Spoken]:
        self.check(model)
        template = template_of(model)
        prompts = [template.render([plain(one) for one in messages]) for messages in questions]
        for found in Complete().run(prompts, model=model, **settings):
            said = Message("assistant", found.text.strip())
            yield Spoken(message=said, finish=found.finish, logprob=found.logprob)

    def evaluate(self, rows: Sequence[Conversation], *, model: Loaded, **settings: Any) -> Scores:
        said = sum(len(one.content.encode()) for row in rows for one in row.messages if one.role == "assistant")
        examples = self.examples(rows, model=model)
        return perplexity(examples, objective=NextToken(), model=model, rows=len(rows), bytes_of_text=said)

    def score(self, answers: Sequence[Spoken], rows: Sequence[Conversation]) -> Scores:
        raise CannotDo("an answer in a conversation has no one right form; `evaluate` asks how likely those given are")


def template_of(model: Loaded) -> ChatTemplate:
    return model.template or ChatTemplate(TEMPLATE, special=words_of(model).special)


def plain(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": message.content}


def answers_marked(messages: Messages, *, model: Loaded) -> Tokens:
    """The whole conversation, with the tokens that the assistant said to be learned."""
    template, spoken = template_of(model), [plain(one) for one in messages]
    said: list[tuple[int, int]] = []
    text = ""
    for at, one in enumerate(messages):
        if one.role == "assistant":
            before, text = template.render(spoken[:at]), template.render(spoken[: at + 1], prompt=False)
            if not text.startswith(before):
                raise InputError("this chat template rewrites what was said before, so answers cannot be told apart")
            said.append((len(before), len(text)))
    if not said:
        raise InputError("a conversation without an answer of the assistant teaches nothing")
    encoding = words_of(model).encode(text)
    learn = [any(first < end and start < last for first, last in said) for start, end in encoding.offsets]
    most = model.spec.context + 1
    return Tokens(encoding.ids[:most], learn[:most])
