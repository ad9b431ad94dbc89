"""The demo: one model of each form learns the little world, and is evaluated on unseen sentences.

    for lesson in LESSONS: model = lesson.learn(FULL, watch)

The sizes, steps and learning rates are those at which small models learn this grammar in about a minute each.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import little_world
from little_world import Sentence
from triform.core.initial_weights import build_network
from triform.costs.machine import Machine
from triform.costs.measure import PathCost, measure_cost
from triform.costs.predict import cost
from triform.data.rows import DocumentRow, LabelledRow, PairRow, TaggedRow
from triform.families import bert, llama, vaswani
from triform.files import atomic_folder
from triform.model import Model
from triform.pipeline.base_model import make_generation_defaults
from triform.spec import ModelSpec, replace
from triform.spec import Tag as TagHead
from triform.tasks.classify import ClassifyTask
from triform.tasks.complete import CompleteTask
from triform.tasks.tag import TagTask
from triform.tasks.tag_and_classify import make_joint_examples, make_joint_labels
from triform.tasks.translate import Alignment, TranslateTask
from triform.text.tokenizer import Tokenizer
from triform.text.train_tokenizer import train_tokenizer
from triform.train.examples import Examples
from triform.train.label_objectives import TokenLabels
from triform.train.loop import train
from triform.train.objectives import Objective
from triform.train.run_config import Config
from triform.train.run_events import Watcher
from triform.weights import model_folder

SEED = 1
TEST_SEED = 2026
TUNING_SENTENCES = 500  # test sentences of SEED that sizes, steps and learning rates were chosen with
BATCH_SENTENCES = 20  # sentences generated in one batch
TEMPERATURE = 0.5  # of the decoder's completions
WISH = "I want to buy a phone."  # held out; in German the verb goes to the end


class DemoSizes(NamedTuple):
    """Training and test sentences; training steps of each form."""

    sentences: int
    test_sentences: int
    encoder: int
    decoder: int
    both: int


FULL = DemoSizes(sentences=40_000, test_sentences=500, encoder=150, decoder=600, both=550)
QUICK = DemoSizes(sentences=10_000, test_sentences=200, encoder=60, decoder=100, both=130)


class DemoAnswer(NamedTuple):
    """An unseen input, the model's answer, and whether it is right."""

    question: str
    answer: str
    right: bool


class DemoModel(NamedTuple):
    """A trained model, its scores on unseen sentences, and some of its answers."""

    name: str
    model: Model
    scores: dict[str, float]
    shown: tuple[DemoAnswer, ...]
    alignment: Alignment | None = None


class DemoLesson(NamedTuple):
    name: str  # of the model's folder
    does: str
    learn: Callable[[DemoSizes, Watcher], DemoModel]


@lru_cache(maxsize=4)
def training_sentences(count: int) -> tuple[Sentence, ...]:
    return tuple(little_world.sentences(split="train", seed=SEED, count=count))


@lru_cache(maxsize=4)
def unseen_sentences(count: int) -> tuple[Sentence, ...]:
    """Sentences for the scores alone: neither training nor the choice of settings has used them. Tune on `valid`."""
    looked_at = {one.english for one in little_world.sentences(split="test", seed=SEED, count=TUNING_SENTENCES)}
    drawn = little_world.sentences(split="test", seed=TEST_SEED, count=10 * count)
    return tuple(islice((one for one in drawn if one.english not in looked_at), count))


def train_model(
    model: Model, examples: Examples[Any], objective: Objective[Any, Any], *, steps: int, watch: Watcher
) -> Model:
    """Muon, with a learning rate that falls to 0; of 0.005 to 0.03, 0.005 to 0.01 learned translation fastest."""
    config = Config(
        steps=steps, batch_tokens=1024, optimizer="muon", learning_rate=0.007, schedule="linear", beta2=0.98,
        weight_decay=0.0, dropout=0.0,
    )  # fmt: skip
    train(model.network, objective=objective, examples=examples, config=config, watch=watch)
    return model


def new_model(spec: ModelSpec, tokenizer: Tokenizer, *, task: str, labels: tuple[str, ...] = ()) -> Model:
    return Model(
        spec=spec,
        network=build_network(spec, seed=SEED),
        tokenizer=tokenizer,
        labels=labels,
        generation=make_generation_defaults(tokenizer, spec.form),
        memo={"task": task},
    )


# --- the lessons ----------------------------------------------------------------------------------------------------


def train_tagger(sizes: DemoSizes, watch: Watcher) -> DemoModel:
    """An encoder that tags and classifies with one head: labels of tokens, and of the text at its first token."""
    some, judged = training_sentences(sizes.sentences)[: sizes.sentences // 4], unseen_sentences(sizes.test_sentences)
    tagged, labelled = make_tag_rows(some), make_label_rows(some)
    tokenizer = train_tokenizer((row.text for row in labelled), kind="wordpiece", vocab=1200)
    labels = make_joint_labels(tagged, labelled)
    spec = replace(
        bert(vocab=tokenizer.vocab, width=96, layers=2, heads=4, context=128), head=TagHead(labels=len(labels))
    )
    model = new_model(spec, tokenizer, task="tag", labels=labels)
    examples = make_joint_examples(tagged, labelled, model=model)
    train_model(model, examples, TokenLabels(), steps=sizes.encoder, watch=watch)
    held_out = make_label_rows(tuple(little_world.sentences(split="valid", seed=SEED, count=sizes.test_sentences)))
    model = ClassifyTask().finish_model(held_out, model=model)
    tagging = TagTask().evaluate(make_tag_rows(judged), model=model).values
    topics = ClassifyTask().evaluate(make_label_rows(judged), model=model).values
    scores = {"tagging F1": tagging["f1"], "topics right": topics["accuracy"]}
    chosen = [one for one in judged if one.entities][:4]
    texts, shown = [one.english for one in chosen], []
    answers = zip(chosen, TagTask().run(texts, model=model), ClassifyTask().run(texts, model=model), strict=True)
    for one, entities, label in answers:
        found = {(each.start, each.end, each.kind) for each in entities.entities}
        answer = ", ".join((label.labels[0], *(f"{each.kind} {each.text}" for each in entities.entities)))
        shown.append(DemoAnswer(one.english, answer, found == set(one.entities) and label.labels == (one.topic,)))
    return DemoModel("reads", model, scores, tuple(shown))


def train_writer(sizes: DemoSizes, watch: Watcher) -> DemoModel:
    """A decoder that continues a prompt; the parser of the grammar checks what it writes."""
    task = CompleteTask()
    rows = [DocumentRow(one.english) for one in training_sentences(sizes.sentences)]
    tokenizer = train_tokenizer((row.text for row in rows), kind="bpe", vocab=1200)
    model = new_model(
        llama(vocab=tokenizer.vocab, width=128, layers=2, heads=4, context=128, tied=True), tokenizer, task="complete"
    )
    examples = task.examples(rows, model=model)
    train_model(model, examples, task.objective(model=model, config=Config()), steps=sizes.decoder, watch=watch)
    judged = unseen_sentences(sizes.test_sentences)
    beginnings = [" ".join(one.english.split()[:2]) for one in judged[:200]]
    texts = []
    for seed in range(
        0, len(beginnings), BATCH_SENTENCES
    ):  # one seed for all batches would draw the same random numbers for each
        some = beginnings[seed : seed + BATCH_SENTENCES]
        written = task.run(some, model=model, options=task.options(temperature=TEMPERATURE, seed=seed, max_tokens=40))
        texts += [begin + one.text for begin, one in zip(some, written, strict=True)]
    right = [little_world.is_grammatical(text) for text in texts]
    scores = {
        "grammatical": 100 * sum(right) / len(right),
        "perplexity": task.evaluate([DocumentRow(one.english) for one in judged], model=model).values["perplexity"],
    }
    learned = {row.text for row in rows}
    fresh = [DemoAnswer(*each) for each in zip(beginnings, texts, right, strict=True) if each[1] not in learned]
    return DemoModel("writes", model, scores, tuple(fresh[:4]))


def train_translator(sizes: DemoSizes, watch: Watcher) -> DemoModel:
    """An encoder–decoder from English into German."""
    task = TranslateTask()
    rows = [PairRow(one.english, one.german) for one in training_sentences(sizes.sentences)]
    tokenizer = train_tokenizer((text for row in rows for text in row.texts), kind="bpe", vocab=2000, ends=True)
    spec = vaswani(vocab=tokenizer.vocab, width=128, layers=2, heads=4, ff_width=256, context=128)
    model = new_model(spec, tokenizer, task="translate")
    examples = task.examples(rows, model=model)
    train_model(model, examples, task.objective(model=model, config=Config()), steps=sizes.both, watch=watch)
    judged = [PairRow(one.english, one.german) for one in unseen_sentences(sizes.test_sentences)]
    answers = list(task.run([row.source for row in judged], model=model, options=task.options(max_tokens=40)))
    score = task.score(answers, judged).values
    scores = {"exact translations": score["exact"], "BLEU": score["BLEU"]}
    shown = [DemoAnswer(row.source, one.text, one.text == row.target) for row, one in zip(judged, answers, strict=True)]
    (wish,) = task.run([WISH], model=model, options=task.options(alignment=True, max_tokens=40))
    return DemoModel("translates", model, scores, tuple(shown[:4]), wish.alignment)


LESSONS = (
    DemoLesson("reads", "an encoder that tags names and classifies topics", train_tagger),
    DemoLesson("writes", "a decoder that continues texts", train_writer),
    DemoLesson("translates", "an encoder-decoder that translates into German", train_translator),
)


def make_tag_rows(some: Iterable[Sentence]) -> list[TaggedRow]:
    return [TaggedRow(one.tokens, one.tags) for one in some]


def make_label_rows(some: Iterable[Sentence]) -> list[LabelledRow]:
    return [LabelledRow(one.english, (one.topic,)) for one in some]


# --- afterwards -----------------------------------------------------------------------------------------------------


def check_free(out: Path) -> None:
    """Called before training: the demo may replace its own folders, but no others."""
    for lesson in LESSONS:
        atomic_folder.check_free(out / lesson.name)


def save_model(learned: DemoModel, out: Path) -> Path:
    """Write an ordinary model folder."""
    model_folder.write(out / learned.name, model=learned.model)
    return out / learned.name


def measure_step(learned: DemoModel, *, machine: Machine) -> PathCost:
    """A training step over 32 sentences of 12 tokens: FLOPs predicted and counted, seconds possible and measured."""
    spec = learned.model.spec
    source = 12 if spec.form == "encoder-decoder" else None
    predicted = cost(spec, phase="training", batch=32, length=12, source=source)
    return measure_cost(learned.model.network, spec=spec, costs=predicted, machine=machine).lines[-1]
