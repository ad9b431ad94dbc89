"""How the vectors of a text's tokens become one embedding, and which prompt is put before a text.

`weights/sentence_transformers.py` reads and writes these settings in a sentence-transformers folder.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

PoolingKind: TypeAlias = Literal["mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens"]
Role: TypeAlias = Literal["text", "query", "document"]  # what a text is embedded as
SimilarityName: TypeAlias = Literal["cosine", "dot", "euclidean", "manhattan"]
ROLES: dict[Role, tuple[str, ...]] = {"text": (), "query": ("query",), "document": ("document", "passage", "corpus")}


# --- layers between the pooled vector and the embedding --------------------------------------------------------------


class VectorLayer(Protocol):
    """f(x) for pooled vectors x, [..., D]"""

    def __call__(self, x: Tensor) -> Tensor: ...


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {  # by the names of torch's modules
    "Identity": lambda x: x,
    "Tanh": torch.tanh,
    "ReLU": F.relu,
    "GELU": F.gelu,
    "SiLU": F.silu,
    "Sigmoid": torch.sigmoid,
}


@dataclass(frozen=True, eq=False)
class DenseLayer:
    """act(x Wᵀ + b); of a residual layer plus x, or plus x Rᵀ where `residual` is R."""

    weight: Tensor
    bias: Tensor | None = None
    act: str = "Tanh"
    is_residual: bool = False
    residual: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        y = ACTIVATIONS[self.act](F.linear(x, self.weight.to(x), None if self.bias is None else self.bias.to(x)))
        if not self.is_residual:
            return y
        return y + (x if self.residual is None else F.linear(x, self.residual.to(x)))


@dataclass(frozen=True, eq=False)
class LayerNormLayer:
    """(x − mean) / √(variance + 1e-5) · w + b"""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weight.to(x), self.bias.to(x))


class NormalizeLayer(NamedTuple):
    """x / |x|, where other layers follow; the last one is `Pooling.normalise`."""

    def __call__(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)


# --- the settings ---------------------------------------------------------------------------------------------------


class Pooling(NamedTuple):
    """kind → further kinds, joined behind it → layers → perhaps length 1"""

    kind: PoolingKind
    normalise: bool  # to length 1
    longest: int | None = None  # max tokens per text; the rest is cut off
    prompts: tuple[tuple[str, str], ...] = ()  # name, prompt
    default_prompt: str | None = None  # for texts that are neither queries nor documents
    further_kinds: tuple[PoolingKind, ...] = ()
    layers: tuple[VectorLayer, ...] = ()
    pools_prompt: bool = True  # the prompt's tokens count too
    dimensions: int | None = None  # of each vector, only so many numbers are kept
    similarity: SimilarityName = "cosine"

    def prompt(self, role: Role) -> str:
        """The prompt before every text of this role, as in encode, encode_query and encode_document of
        sentence-transformers."""
        known = dict(self.prompts)
        names = [name for name in (*ROLES[role], self.default_prompt) if name in known]
        return known[names[0]] if names else ""

    def full_width(self, width: int) -> int:
        """Numbers of a vector before it is shortened; `width` is that of the tokens' vectors."""
        dense = [layer for layer in self.layers if isinstance(layer, DenseLayer)]
        return dense[-1].weight.shape[0] if dense else width * (1 + len(self.further_kinds))

    def width(self, width: int) -> int:
        """Numbers of an embedding."""
        full = self.full_width(width)
        return min(full, self.dimensions or full)

    def apply_layers(self, x: Tensor, *, dimensions: int | None = None) -> Tensor:
        """Pooled vectors to embeddings. A shortened vector has length 1 again where the whole one has."""
        for layer in self.layers:
            x = layer(x)
        x = x[..., : dimensions or self.dimensions]
        return F.normalize(x, dim=-1) if self.normalise else x


def compare_vectors(queries: Tensor, documents: Tensor, similarity: SimilarityName) -> Tensor:
    """[Q, D] and [N, D] to [Q, N]: the higher, the more similar."""
    match similarity:
        case "cosine":
            return F.normalize(queries, dim=-1) @ F.normalize(documents, dim=-1).T
        case "dot":
            return queries @ documents.T
        case "euclidean":
            return -torch.cdist(queries, documents, compute_mode="donot_use_mm_for_euclid_dist")
        case "manhattan":
            return -torch.cdist(queries, documents, p=1.0)
