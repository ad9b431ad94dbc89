"""Embed: a text as a vector; texts of similar meaning have vectors near each other.

The model's folder says how token vectors are pooled (mean, first token, maximum; normalised or not), else the mean. Of
a long text the beginning is read, as in sentence-transformers; with `windows` all of it, as the mean over windows. A
folder's prompts are put before the texts they are meant for.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import torch
from msgspec import Meta
from torch import Tensor
from torch.nn import functional as F

from triform.core.texts import Text
from triform.data.chunks import portions
from triform.data.rows import Scored
from triform.errors import InputError, UnknownName
from triform.metrics import spearman
from triform.model import Model
from triform.pooling import ROLES, Pooling, Role
from triform.spec import Form, ModelSpec, NoHead, replace
from triform.tasks.bag_of_words import words_of
from triform.tasks.bm25 import BM25
from triform.tasks.encoder_batches import (
    Read,
    Reader,
    Windows,
    beginnings_of,
    check_texts,
    longest_of,
    window_means,
    windows_of,
)
from triform.tasks.options import TaskOptions
from triform.tasks.task import Reply, Scores, Task
from triform.train.examples import Examples, Listed, TwoTexts
from triform.train.objectives import Objective, apart, means
from triform.train.pair_objectives import CosineScores, InBatchNegatives
from triform.train.run_config import Config

MEAN = Pooling("mean", normalise=False)


class EmbeddingVector(Reply, frozen=True, kw_only=True):
    vector: tuple[float, ...]

    def __str__(self) -> str:
        return " ".join(f"{x:.6g}" for x in self.vector)


class Similarity(Reply, frozen=True, kw_only=True):
    """The cosine of the vectors of two texts."""

    cosine: float

    def __str__(self) -> str:
        return f"cosine {self.cosine:.3f}"


class EmbedTask(Task[Scored, str, EmbeddingVector]):
    """Compute embeddings as the makers of MODEL do: of a text longer than the model reads, the beginning counts.

    An --out that ends in .safetensors holds one tensor, `vectors`, with one row per text.

    A text that cannot be read is a row of NaN, so that row n stays the vector of text n.

    \b
    Examples:
      triform embed minilm "The fat ginger cat sat on a mat." --json
      triform embed minilm --file sentences.txt --out vectors.safetensors
    """

    name = "embed"
    forms = ("encoder",)
    kind = Scored
    needs = "pooled vectors"
    answer_type = EmbeddingVector
    example = {"input": "sea lion\nlion\ncuddly toy\nmole"}  # noqa: RUF012
    cuts = True

    class Options(TaskOptions, frozen=True, kw_only=True):
        windows: Annotated[
            bool,
            Meta(
                description="Read long texts whole, as the mean over windows; default: their beginning.",
                extra={"http": False},
            ),
        ] = False
        role: Annotated[
            Role, Meta(description="Which of the folder's prompts is put before each text.", extra={"http": False})
        ] = "text"

    # --- head -------------------------------------------------------------------------------------------------------

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        return replace(base, head=NoHead())

    def memo(self, rows: Sequence[Scored]) -> dict[str, Any]:
        """The largest score: cosines end at 1, the scale of STSb at 5. Where all have it, all pairs are alike."""
        return {"largest_score": max(1.0, *(row.score for row in rows)), "only_alike": only_alike(rows)}

    # --- training ----------------------------------------------------------------------------------------------------

    def recipe(self, form: Form, *, fresh: bool) -> Config:
        return pairs_recipe(fresh=fresh)

    def examples(self, rows: Sequence[Scored], *, model: Model) -> Examples[TwoTexts]:
        largest = float(model.memo.get("largest_score", 1.0))
        texts = [(row.first, row.second) for row in rows]
        return pair_examples(texts, scores=[row.score / largest for row in rows], model=model, roles=("text", "text"))

    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]:
        check_trainable(model)
        return InBatchNegatives() if model.memo.get("only_alike") else CosineScores()

    def finished(self, rows: Sequence[Scored], *, model: Model) -> Model:
        return with_pooling(model)

    # --- running and scoring ------------------------------------------------------------------------------------------

    def question(self, row: Scored) -> str:
        return row.first

    def tried(self, row: Scored, *, model: Model) -> tuple[str, Similarity]:
        return alike(row.first, row.second, model=model)

    def run(
        self, questions: Sequence[str], *, model: Model, options: Options | None = None
    ) -> Iterator[EmbeddingVector]:
        self.check(model)
        chosen = options or self.Options()
        for some in portions(questions):
            found, cut = self.read(some, model=model, windows=chosen.windows, role=chosen.role)
            for vector, text in zip(found.tolist(), cut, strict=True):
                yield EmbeddingVector(vector=tuple(vector), unknown=text.unknown, cut=text.cut)

    def vectors(self, texts: Sequence[str], *, model: Model, windows: bool = False, role: Role = "text") -> Tensor:
        """[texts, D], on the CPU"""
        self.check(model)
        found = [self.read(some, model=model, windows=windows, role=role)[0] for some in portions(texts)]
        return torch.cat(found) if found else torch.zeros(0, model.spec.width)

    def read(
        self, texts: Sequence[str], *, model: Model, windows: bool = False, role: Role = "text"
    ) -> tuple[Tensor, list[Windows]]:
        """[texts, D], on the CPU, and what of each text was read."""
        pooling = model.pooling or MEAN
        cut = (windows_of if windows else beginnings_of)(prompted(texts, model=model, role=role), model=model)
        found = window_means(cut, model=model, read=POOLS[pooling.kind])
        vectors = F.normalize(found, dim=-1) if pooling.normalise else found
        return vectors.cpu(), cut

    def score(self, answers: Sequence[EmbeddingVector], rows: Sequence[Scored]) -> Scores:
        """Answers to all first texts, then to all second ones."""
        found = torch.tensor([answer.vector for answer in answers], dtype=torch.float64)
        return _judged(found, rows)

    def evaluate(self, rows: Sequence[Scored], *, model: Model, options: Any = None) -> Scores:
        texts = [row.first for row in rows] + [row.second for row in rows]
        return _judged(self.vectors(texts, model=model).double(), rows)

    def baselines(self, rows: Sequence[Scored], *, train: Sequence[Scored]) -> Mapping[str, Scores]:
        if not only_alike(rows):
            return {"shared words": _ordered([shared_words(row.first, row.second) for row in rows], rows)}
        ranked = BM25([row.second for row in rows])
        return {"BM25": _nearest([int(ranked.scores(row.first).argmax()) for row in rows], rows)}


def prompted(texts: Sequence[str], *, model: Model, role: Role) -> Sequence[str]:
    """Behind what the folder puts before texts of this role."""
    check_texts(texts)
    if role not in ROLES:
        raise UnknownName("role", str(role), ROLES)
    prompt = (model.pooling or MEAN).prompt(role)
    return [prompt + text for text in texts] if prompt else texts


# --- vectors --------------------------------------------------------------------------------------------------------


def _mean(network: Reader, text: Text) -> Tensor:
    return means(text, network.hidden(text))


def _first(network: Reader, text: Text) -> Tensor:
    return text.first(network.hidden(text))


def _most(network: Reader, text: Text) -> Tensor:
    return torch.stack([x.amax(0) for x in apart(text, network.hidden(text))])


POOLS: dict[str, Read] = {"mean": _mean, "cls": _first, "max": _most}


def _judged(vectors: Tensor, rows: Sequence[Scored]) -> Scores:
    """How well cosines order the pairs; where all are equally alike, how often the nearest text is the pair's own."""
    first, second = F.normalize(vectors, dim=-1).chunk(2)
    if only_alike(rows):
        return _nearest([int((one @ second.T).argmax()) for one in first], rows)
    return _ordered((first * second).sum(-1).tolist(), rows)


def only_alike(rows: Sequence[Scored]) -> bool:
    return len({row.score for row in rows}) <= 1


def _ordered(likeness: Sequence[float], rows: Sequence[Scored]) -> Scores:
    found = spearman(likeness, [row.score for row in rows])
    return Scores(main="spearman", values={"spearman": found}, rows=len(rows), signature="cosine, ×100")


def _nearest(found: Sequence[int], rows: Sequence[Scored]) -> Scores:
    own = sum(rows[at].second == row.second for at, row in zip(found, rows, strict=True))
    return Scores(main="recall@1", values={"recall@1": 100 * own / max(1, len(rows))}, rows=len(rows))


def alike(one: str, other: str, *, model: Model) -> tuple[str, Similarity]:
    """Two texts, and their cosine."""
    first, second = F.normalize(EmbedTask().vectors([one, other], model=model), dim=-1)
    return f"{one} | {other}", Similarity(cosine=float(first @ second))


def shared_words(one: str, other: str) -> float:
    """The cosine of two texts as sets of words."""
    a, b = set(words_of(one)), set(words_of(other))
    return len(a & b) / math.sqrt(max(1, len(a) * len(b)))


# --- learning from pairs --------------------------------------------------------------------------------------------


def pairs_recipe(*, fresh: bool) -> Config:
    shared = Config(batch_tokens=2048, schedule="linear", warmup=0.1, weight_decay=0.01, beta2=0.999, dropout=0.1)
    if fresh:
        return shared.replace(epochs=8, batch_tokens=4096, learning_rate=1e-3, eval_every=100, patience=8)
    return shared.replace(epochs=4, learning_rate=3e-5, eval_every=100)


def pair_examples(
    texts: Sequence[tuple[str, str]], *, scores: Sequence[float], model: Model, roles: tuple[Role, Role]
) -> Examples[TwoTexts]:
    """Read as they are when vectors are made of them: of a long text the beginning, behind the prompt of its role."""
    ids: list[tuple[Any, Any]] = []
    for some in portions(texts):
        first, second = (
            beginnings_of(prompted(side, model=model, role=role), model=model)
            for side, role in zip(zip(*some, strict=True), roles, strict=True)
        )
        ids += [(one.ids[0], other.ids[0]) for one, other in zip(first, second, strict=True)]
    found = [TwoTexts(*each, score=score) for each, score in zip(ids, scores, strict=True)]
    return Listed(found, lengths=[len(each.first) + len(each.second) for each in found])


def check_trainable(model: Model) -> None:
    if model.pooling is not None and model.pooling.kind != "mean":
        raise InputError(f"this model's vectors are made by {model.pooling.kind!r}; training makes them by the mean")


def with_pooling(model: Model) -> Model:
    """What it has learned to do is said in its folder."""
    if model.pooling is None:
        return model.replace(pooling=Pooling("mean", normalise=True, longest=longest_of(model)))
    return model
