"""Embed: a text as a vector; texts of similar meaning have vectors near each other.

The model's folder says how token vectors are pooled and which layers follow, else it is the mean. Of a long text the
beginning is read, as in sentence-transformers; with `windows` all of it, as the mean over windows. A folder's prompts
are put before the texts they are meant for.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import torch
from msgspec import Meta
from torch import Tensor
from torch.nn import functional as F

from triform.data.chunks import split_chunks
from triform.data.rows import ScoredPairRow
from triform.errors import InputError, UnknownName
from triform.metrics import spearman
from triform.model import Model
from triform.pooling import ROLES, Pooling, Role
from triform.spec import Form, ModelSpec, NoHead, replace
from triform.tasks.bag_of_words import split_words
from triform.tasks.bm25 import BM25
from triform.tasks.encoder_batches import (
    TextWindows,
    check_texts,
    cut_texts,
    get_max_tokens,
    split_into_windows,
)
from triform.tasks.options import TaskOptions
from triform.tasks.task import Reply, Scores, Task
from triform.tasks.text_vectors import get_pooling, get_width, vectors_of_windows
from triform.train.examples import ExampleList, Examples, TwoTexts
from triform.train.objectives import Objective
from triform.train.pair_objectives import CosineScores, InBatchNegatives
from triform.train.run_config import Config


class EmbeddingVector(Reply, frozen=True, kw_only=True):
    """The vector of a text."""

    vector: tuple[float, ...]

    @property
    def numbers(self) -> tuple[float, ...]:
        """The vector."""
        return self.vector

    def __str__(self) -> str:
        return " ".join(f"{x:.6g}" for x in self.vector)


class Similarity(Reply, frozen=True, kw_only=True):
    """The cosine of the vectors of two texts."""

    cosine: float

    def __str__(self) -> str:
        return f"cosine {self.cosine:.3f}"


Dimensions: TypeAlias = Annotated[
    int,
    Meta(
        ge=1,
        lt=2**31,
        description="Keep this many dimensions of each vector (Matryoshka models).",
        extra={"form": False},
    ),
]


class EmbedTask(Task[ScoredPairRow, str, EmbeddingVector]):
    """Compute embeddings as the makers of MODEL do: of a text longer than the model reads, the beginning counts.

    An --out that ends in .safetensors holds one tensor, `vectors`, with one row per text.

    A text that cannot be read is a row of NaN, so that row n stays the vector of text n.

    \b
    Examples:
      triform embed minilm "The fat ginger cat sat on a mat." --json
      triform embed minilm --file sentences.txt --out vectors.safetensors
      triform embed e5-small-v2 "How do moles dig?" --prompt query
      triform embed nomic-embed-text-v1.5 "A mole dug a hole." --prompt document --dimensions 256
    """

    name = "embed"
    forms = ("encoder",)
    kind = ScoredPairRow
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
        prompt: Annotated[
            str | None,
            Meta(
                description="The prompt of this name, of those in the model's folder, is put before each text.",
                extra={"http": "prompt_name", "form": False},
            ),
        ] = None
        dimensions: Dimensions | None = None

    # --- head -------------------------------------------------------------------------------------------------------

    def spec(self, base: ModelSpec, *, labels: Sequence[str]) -> ModelSpec:
        return replace(base, head=NoHead())

    def memo(self, rows: Sequence[ScoredPairRow]) -> dict[str, Any]:
        """The largest score: cosines end at 1, the scale of STSb at 5. Where all have it, all pairs are alike."""
        return {"largest_score": max(1.0, *(row.score for row in rows)), "only_alike": are_all_similar(rows)}

    # --- training ----------------------------------------------------------------------------------------------------

    def recipe(self, form: Form, *, fresh: bool) -> Config:
        return make_pairs_recipe(fresh=fresh)

    def examples(self, rows: Sequence[ScoredPairRow], *, model: Model) -> Examples[TwoTexts]:
        largest = float(model.memo.get("largest_score", 1.0))
        texts = [(row.first, row.second) for row in rows]
        return make_pair_examples(
            texts, scores=[row.score / largest for row in rows], model=model, roles=("text", "text")
        )

    def objective(self, *, model: Model, config: Config) -> Objective[Any, Any]:
        check_trainable(model)
        return InBatchNegatives() if model.memo.get("only_alike") else CosineScores()

    def finish_model(self, rows: Sequence[ScoredPairRow], *, model: Model) -> Model:
        return add_pooling(model)

    # --- running and scoring ------------------------------------------------------------------------------------------

    def question(self, row: ScoredPairRow) -> str:
        return row.first

    def try_sample(self, row: ScoredPairRow, *, model: Model) -> tuple[str, Similarity]:
        return compare_texts(row.first, row.second, model=model)

    def run(
        self, questions: Sequence[str], *, model: Model, options: Options | None = None
    ) -> Iterator[EmbeddingVector]:
        self.check(model)
        for some in split_chunks(questions):
            found, cut = self.read(some, model=model, options=options)
            for vector, text in zip(found.tolist(), cut, strict=True):
                yield EmbeddingVector(vector=tuple(vector), unknown=text.unknown, cut=text.cut)

    def compute_vectors(self, texts: Sequence[str], *, model: Model, **options: Any) -> Tensor:
        """[texts, D], on the CPU"""
        self.check(model)
        chosen = self.options(**options)
        found = [self.read(some, model=model, options=chosen)[0] for some in split_chunks(texts)]
        return torch.cat(found) if found else torch.zeros(0, chosen.dimensions or get_width(model))

    def read(
        self, texts: Sequence[str], *, model: Model, options: Options | None = None
    ) -> tuple[Tensor, list[TextWindows]]:
        """[texts, D], on the CPU, and what of each text was read."""
        chosen = options or self.Options()
        prompt = find_prompt(model, role=chosen.role, name=chosen.prompt)
        skip = 0 if get_pooling(model).pools_prompt else count_prompt_tokens(prompt, model=model)
        if skip and chosen.windows:
            raise InputError("this model's prompts do not count in its vectors, so it reads no further windows")
        cut = (split_into_windows if chosen.windows else cut_texts)(add_prompt(texts, prompt), model=model)
        return vectors_of_windows(cut, model=model, skip=skip, dimensions=chosen.dimensions), cut

    def score(self, answers: Sequence[EmbeddingVector], rows: Sequence[ScoredPairRow]) -> Scores:
        """Answers to all first texts, then to all second ones."""
        found = torch.tensor([answer.vector for answer in answers], dtype=torch.float64)
        return _judged(found, rows)

    def evaluate(self, rows: Sequence[ScoredPairRow], *, model: Model, options: Any = None) -> Scores:
        texts = [row.first for row in rows] + [row.second for row in rows]
        return _judged(self.compute_vectors(texts, model=model).double(), rows)

    def baselines(self, rows: Sequence[ScoredPairRow], *, train: Sequence[ScoredPairRow]) -> Mapping[str, Scores]:
        if not are_all_similar(rows):
            return {"shared words": _ordered([compute_shared_words(row.first, row.second) for row in rows], rows)}
        ranked = BM25([row.second for row in rows])
        return {"BM25": _nearest([int(ranked.scores(row.first).argmax()) for row in rows], rows)}


def find_prompt(model: Model, *, role: Role = "text", name: str | None = None) -> str:
    """The prompt of this name; else what the folder puts before texts of this role."""
    if role not in ROLES:
        raise UnknownName("role", str(role), ROLES, field="role")
    known = dict(get_pooling(model).prompts)
    if name is None:
        return get_pooling(model).prompt(role)
    if role != "text":
        raise InputError(f"prompt={name!r} and role={role!r} both choose a prompt; give one of them", field="prompt")
    if name not in known:
        if not known:
            raise InputError(f"unknown prompt {name[:80]!r}: this model's folder has no prompts", field="prompt")
        raise UnknownName("prompt", name, known, field="prompt")
    return known[name]


def add_prompt(texts: Sequence[str], prompt: str) -> Sequence[str]:
    """The texts behind the prompt."""
    check_texts(texts)
    return [prompt + text for text in texts] if prompt else texts


def count_prompt_tokens(prompt: str, *, model: Model) -> int:
    """Tokens of the prompt and of what the tokenizer puts before it."""
    if not prompt:
        return 0
    parts = model.require_tokenizer().encode(prompt).parts
    return max((at + 1 for at, part in enumerate(parts) if part is not None), default=0)


# --- scores -----------------------------------------------------------------------------------------------------------


def _judged(vectors: Tensor, rows: Sequence[ScoredPairRow]) -> Scores:
    """How well cosines order the pairs; where all are equally alike, how often the nearest text is the pair's own."""
    first, second = F.normalize(vectors, dim=-1).chunk(2)
    if are_all_similar(rows):
        return _nearest([int((one @ second.T).argmax()) for one in first], rows)
    return _ordered((first * second).sum(-1).tolist(), rows)


def are_all_similar(rows: Sequence[ScoredPairRow]) -> bool:
    return len({row.score for row in rows}) <= 1


def _ordered(likeness: Sequence[float], rows: Sequence[ScoredPairRow]) -> Scores:
    found = spearman(likeness, [row.score for row in rows])
    return Scores(main="spearman", values={"spearman": found}, rows=len(rows), signature="cosine, ×100")


def _nearest(found: Sequence[int], rows: Sequence[ScoredPairRow]) -> Scores:
    own = sum(rows[at].second == row.second for at, row in zip(found, rows, strict=True))
    return Scores(main="recall@1", values={"recall@1": 100 * own / max(1, len(rows))}, rows=len(rows))


def compare_texts(one: str, other: str, *, model: Model) -> tuple[str, Similarity]:
    """Two texts, and their cosine."""
    first, second = F.normalize(EmbedTask().compute_vectors([one, other], model=model), dim=-1)
    return f"{one} | {other}", Similarity(cosine=float(first @ second))


def compute_shared_words(one: str, other: str) -> float:
    """The cosine of two texts as sets of words."""
    a, b = set(split_words(one)), set(split_words(other))
    return len(a & b) / math.sqrt(max(1, len(a) * len(b)))


# --- learning from pairs --------------------------------------------------------------------------------------------


def make_pairs_recipe(*, fresh: bool) -> Config:
    """The default training config for pairs of texts."""
    shared = Config(batch_tokens=2048, schedule="linear", warmup=0.1, weight_decay=0.01, beta2=0.999, dropout=0.1)
    if fresh:
        return shared.replace(epochs=8, batch_tokens=4096, learning_rate=1e-3, eval_every=100, patience=8)
    return shared.replace(epochs=4, learning_rate=3e-5, eval_every=100)


def make_pair_examples(
    texts: Sequence[tuple[str, str]], *, scores: Sequence[float], model: Model, roles: tuple[Role, Role]
) -> Examples[TwoTexts]:
    """Read as they are when vectors are made of them: of a long text the beginning, behind the prompt of its role."""
    ids: list[tuple[Any, Any]] = []
    for some in split_chunks(texts):
        first, second = (
            cut_texts(add_prompt(side, find_prompt(model, role=role)), model=model)
            for side, role in zip(zip(*some, strict=True), roles, strict=True)
        )
        ids += [(one.ids[0], other.ids[0]) for one, other in zip(first, second, strict=True)]
    found = [TwoTexts(*each, score=score) for each, score in zip(ids, scores, strict=True)]
    return ExampleList(found, lengths=[len(each.first) + len(each.second) for each in found])


def check_trainable(model: Model) -> None:
    """Training makes vectors by the mean alone."""
    pooling = get_pooling(model)
    kinds = "+".join((pooling.kind, *pooling.further_kinds))
    if kinds != "mean":
        raise InputError(f"this model's vectors are made by {kinds!r}; training makes them by the mean")
    if pooling.layers:
        raise InputError("this model has layers behind its pooling; training makes vectors by the mean alone")


def add_pooling(model: Model) -> Model:
    """What it has learned to do is said in its folder."""
    if model.pooling is None:
        return model.replace(pooling=Pooling("mean", normalise=True, longest=get_max_tokens(model)))
    return model
