"""The demo: one model of each form learns the little world, and is judged on sentences it has never seen.

    for lesson in LESSONS: learned = lesson.learn(FULL, watch=watch)

Owns the recipes: the sizes, steps and rates at which small models learn this grammar in about a minute each. Refuses to
know terminals; folders are written by `keep`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

import little_world
from little_world import Sentence
from triform.core.initial_weights import build
from triform.costs.compare import Line
from triform.costs.machine import Machine
from triform.costs.measure import run_beside
from triform.costs.predict import cost
from triform.data.rows import Document, Labelled, Pair, Tagged
from triform.families import bert, llama, vaswani
from triform.files import atomic_folder
from triform.model import Model
from triform.pipeline.base_model import generation_of
from triform.spec import ModelSpec, replace
from triform.spec import Tag as TagHead
from triform.tasks.classify import Classify
from triform.tasks.complete import Complete
from triform.tasks.tag import Tag
from triform.tasks.tag_and_classify import joint_examples, joint_labels
from triform.tasks.translate import Alignment, Translate
from triform.text.tokenizer import Tokenizer
from triform.text.train_tokenizer import train_tokenizer
from triform.train.examples import Examples
from triform.train.label_objectives import TokenLabels
from triform.train.loop import train
from triform.train.objectives import Objective
from triform.train.run_config import Config
from triform.train.run_events import Watch
from triform.weights import model_folder

SEED = 1
JUDGING_SEED = 2026
LOOKED_AT = 500  # test sentences of SEED that sizes, steps and rates were chosen by
TOGETHER = 20  # sentences written side by side
TEMPERATURE = 0.5  # of what the decoder writes
WISH = "I want to buy a phone."  # held out; in German the verb goes to the end


class Sizes(NamedTuple):
    """Sentences to learn from and to be judged on; steps of each form's run."""

    sentences: int
    judged: int
    encoder: int
    decoder: int
    both: int


FULL = Sizes(sentences=40_000, judged=500, encoder=150, decoder=600, both=550)
QUICK = Sizes(sentences=10_000, judged=200, encoder=60, decoder=100, both=130)


class Shown(NamedTuple):
    """A question that was never in training, what the model says, and whether that is right."""

    question: str
    answer: str
    right: bool


class Learned(NamedTuple):
    """What a lesson leaves: a model, how well it does on sentences never seen, and some of what it says."""

    name: str
    model: Model
    scores: dict[str, float]
    shown: tuple[Shown, ...]
    alignment: Alignment | None = None


class Lesson(NamedTuple):
    name: str  # of the model's folder
    does: str
    learn: Callable[[Sizes, Watch], Learned]


@contextmanager
def one_thread() -> Iterator[None]:
    """Matrices of these sizes keep one core busy; a second thread waits more than it works, and where the machine has
    other things to do it waits for them too (60 steps of the translator: 10 s alone, 94 s with two threads)."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=4)
def known(count: int) -> tuple[Sentence, ...]:
    return tuple(little_world.sentences(split="train", seed=SEED, count=count))


@lru_cache(maxsize=4)
def unseen(count: int) -> tuple[Sentence, ...]:
    """Sentences for the figures alone: no model and no choice of a recipe has seen them. Try others on `valid`."""
    looked_at = {one.english for one in little_world.sentences(split="test", seed=SEED, count=LOOKED_AT)}
    drawn = little_world.sentences(split="test", seed=JUDGING_SEED, count=10 * count)
    return tuple(islice((one for one in drawn if one.english not in looked_at), count))


def trained(
    model: Model, examples: Examples[Any], objective: Objective[Any, Any], *, steps: int, watch: Watch
) -> Model:
    """Muon, at a rate that falls to 0; of 0.005 to 0.03 tried, translations were learned soonest at 0.005 to 0.01."""
    config = Config(
        steps=steps, batch_tokens=1024, optimizer="muon", learning_rate=0.007, schedule="linear", beta2=0.98,
        weight_decay=0.0, dropout=0.0,
    )  # fmt: skip
    train(model.network, objective=objective, examples=examples, config=config, watch=watch)
    return model


def new(spec: ModelSpec, tokenizer: Tokenizer, *, task: str, labels: tuple[str, ...] = ()) -> Model:
    return Model(
        spec=spec,
        network=build(spec, seed=SEED),
        tokenizer=tokenizer,
        labels=labels,
        generation=generation_of(tokenizer, spec.form),
        memo={"task": task},
    )


# --- the lessons ----------------------------------------------------------------------------------------------------


def reads(sizes: Sizes, watch: Watch) -> Learned:
    """An encoder that tags and classifies with one head: labels of tokens, and of the text at its first token."""
    some, judged = known(sizes.sentences)[: sizes.sentences // 4], unseen(sizes.judged)
    tagged, labelled = tag_rows(some), label_rows(some)
    tokenizer = train_tokenizer((row.text for row in labelled), kind="wordpiece", vocab=1200)
    labels = joint_labels(tagged, labelled)
    spec = replace(
        bert(vocab=tokenizer.vocab, width=96, layers=2, heads=4, context=128), head=TagHead(labels=len(labels))
    )
    model = new(spec, tokenizer, task="tag", labels=labels)
    examples = joint_examples(tagged, labelled, model=model)
    trained(model, examples, TokenLabels(), steps=sizes.encoder, watch=watch)
    held_out = label_rows(tuple(little_world.sentences(split="valid", seed=SEED, count=sizes.judged)))
    model = Classify().finished(held_out, model=model)
    tagging = Tag().evaluate(tag_rows(judged), model=model).values
    topics = Classify().evaluate(label_rows(judged), model=model).values
    scores = {"tagging F1": tagging["f1"], "topics right": topics["accuracy"]}
    asked = [one for one in judged if one.entities][:4]
    texts, shown = [one.english for one in asked], []
    answers = zip(asked, Tag().run(texts, model=model), Classify().run(texts, model=model), strict=True)
    for one, entities, label in answers:
        found = {(each.start, each.end, each.kind) for each in entities.entities}
        said = ", ".join((label.labels[0], *(f"{each.kind} {each.text}" for each in entities.entities)))
        shown.append(Shown(one.english, said, found == set(one.entities) and label.labels == (one.topic,)))
    return Learned("reads", model, scores, tuple(shown))


def writes(sizes: Sizes, watch: Watch) -> Learned:
    """A decoder that goes on from a beginning; the grammar's own parser judges what it writes."""
    task = Complete()
    rows = [Document(one.english) for one in known(sizes.sentences)]
    tokenizer = train_tokenizer((row.text for row in rows), kind="bpe", vocab=1200)
    model = new(
        llama(vocab=tokenizer.vocab, width=128, layers=2, heads=4, context=128, tied=True), tokenizer, task="complete"
    )
    examples = task.examples(rows, model=model)
    trained(model, examples, task.objective(model=model, config=Config()), steps=sizes.decoder, watch=watch)
    judged = unseen(sizes.judged)
    beginnings = [" ".join(one.english.split()[:2]) for one in judged[:200]]
    texts = []
    for seed in range(0, len(beginnings), TOGETHER):  # one seed for all would throw the same dice for all
        some = beginnings[seed : seed + TOGETHER]
        written = task.run(some, model=model, temperature=TEMPERATURE, seed=seed, max_tokens=40)
        texts += [begin + one.text for begin, one in zip(some, written, strict=True)]
    right = [little_world.grammatical(text) for text in texts]
    scores = {
        "grammatical": 100 * sum(right) / len(right),
        "perplexity": task.evaluate([Document(one.english) for one in judged], model=model).values["perplexity"],
    }
    learned = {row.text for row in rows}
    fresh = [Shown(*each) for each in zip(beginnings, texts, right, strict=True) if each[1] not in learned]
    return Learned("writes", model, scores, tuple(fresh[:4]))


def translates(sizes: Sizes, watch: Watch) -> Learned:
    """An encoder–decoder from English into German."""
    task = Translate()
    rows = [Pair(one.english, one.german) for one in known(sizes.sentences)]
    tokenizer = train_tokenizer((text for row in rows for text in row.texts), kind="bpe", vocab=2000, ends=True)
    spec = vaswani(vocab=tokenizer.vocab, width=128, layers=2, heads=4, ff_width=256, context=128)
    model = new(spec, tokenizer, task="translate")
    examples = task.examples(rows, model=model)
    trained(model, examples, task.objective(model=model, config=Config()), steps=sizes.both, watch=watch)
    judged = [Pair(one.english, one.german) for one in unseen(sizes.judged)]
    answers = list(task.run([row.source for row in judged], model=model, max_tokens=40))
    score = task.score(answers, judged).values
    scores = {"exact translations": score["exact"], "BLEU": score["BLEU"]}
    shown = [Shown(row.source, one.text, one.text == row.target) for row, one in zip(judged, answers, strict=True)]
    (wish,) = task.run([WISH], model=model, alignment=True, max_tokens=40)
    return Learned("translates", model, scores, tuple(shown[:4]), wish.alignment)


LESSONS = (
    Lesson("reads", "an encoder that tags names and tells the topic", reads),
    Lesson("writes", "a decoder that writes on", writes),
    Lesson("translates", "an encoder-decoder that translates into German", translates),
)


def tag_rows(some: Iterable[Sentence]) -> list[Tagged]:
    return [Tagged(one.tokens, one.tags) for one in some]


def label_rows(some: Iterable[Sentence]) -> list[Labelled]:
    return [Labelled(one.english, (one.topic,)) for one in some]


# --- afterwards -----------------------------------------------------------------------------------------------------


def check_free(out: Path) -> None:
    """Said before anything is learned: the folders of the demo may be replaced, others not."""
    for lesson in LESSONS:
        atomic_folder.check_free(out / lesson.name)


def keep(learned: Learned, out: Path) -> Path:
    """An ordinary model folder."""
    model_folder.write(out / learned.name, model=learned.model)
    return out / learned.name


def a_step(learned: Learned, *, machine: Machine) -> Line:
    """A training step over 32 sentences of 12 tokens: FLOPs predicted and counted, seconds at best and measured."""
    spec = learned.model.spec
    source = 12 if spec.form == "encoder-decoder" else None
    predicted = cost(spec, phase="training", batch=32, length=12, source=source)
    return run_beside(learned.model.network, spec=spec, costs=predicted, machine=machine).lines[-1]
