"""The specification of a model: frozen values, validated when created, comparable, and readable and writable as JSON.

Defines the names that all other modules use (`width heads kv_heads head_width ff_width layers vocab context`).
Knows nothing of torch, files, and the names of other projects.
"""

from typing import Literal, TypeAlias, TypeVar, get_args

import msgspec

from triform.errors import SpecError

Act: TypeAlias = Literal["relu", "gelu", "gelu-tanh", "silu", "tanh"]
NormAt: TypeAlias = Literal["pre", "post", "sandwich"]
Pick: TypeAlias = Literal["each", "first", "last"]
NormKind: TypeAlias = Literal["layer", "rms"]
SinusoidLayout: TypeAlias = Literal["interleaved", "halves"]
Form: TypeAlias = Literal["encoder", "decoder", "encoder-decoder"]

LARGEST = 2**40  # upper bound of every size: a damaged file must not request more than an address space


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A frozen value; exclusive options are a union of these, with the class name as the tag in JSON."""


def _check_sizes(owner: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= LARGEST:
            raise SpecError(f"{owner}: {name}={size!r} is not a size; use a whole number from 1 up")


def _check_choice(owner: str, name: str, value: str, kinds: object) -> None:
    known = get_args(kinds)
    if value not in known:
        raise SpecError(f"{owner}: {name}={value!r} is not known; use one of {', '.join(known)}")


def _check_number(owner: str, name: str, value: float, *, above: float, below: float = float("inf")) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not above < value < below:
        raise SpecError(f"{owner}: {name}={value!r} is out of range; use a number between {above:g} and {below:g}")


# --- norms --------------------------------------------------------------------------------------------------------


class NormSpec(Spec, frozen=True):
    """layer: (x − mean) / √(var + eps) · γ + β;  rms: x / √(mean x² + eps) · γ"""

    kind: NormKind = "layer"
    eps: float = 1e-5

    def __post_init__(self) -> None:
        _check_choice("norm", "kind", self.kind, NormKind)
        _check_number("norm", "eps", self.eps, above=0.0, below=1.0)


# --- positions ----------------------------------------------------------------------------------------------------


class NoPosition(Spec, frozen=True):
    """No positions (a decoder still learns some order from its causal mask)."""


class Sinusoid(Spec, frozen=True):
    """Added to embeddings: sin and cos of pos / 10000^(2i/D), interleaved (paper) or in two halves (Marian)."""

    layout: SinusoidLayout = "interleaved"

    def __post_init__(self) -> None:
        _check_choice("sinusoid", "layout", self.layout, SinusoidLayout)


class Learned(Spec, frozen=True):
    """Added to embeddings: one learned vector per position, after `reserved` unused rows (RoBERTa and BART: 2)."""

    reserved: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.reserved <= 1024:
            raise SpecError(f"learned positions: reserved={self.reserved} is out of range; use 0 to 1024")


class NoScaling(Spec, frozen=True):
    """Rotary angles as they were trained."""


class LinearScaling(Spec, frozen=True):
    """Every angle divided by `factor`: position interpolation."""

    factor: float

    def __post_init__(self) -> None:
        _check_number("linear scaling", "factor", self.factor, above=0.0)


class Llama3Scaling(Spec, frozen=True):
    """Low frequencies divided by `factor`, high ones unchanged, a smooth transition between (Llama 3.1)."""

    factor: float
    low: float
    high: float
    trained: int  # the context of the original training

    def __post_init__(self) -> None:
        _check_number("llama3 scaling", "factor", self.factor, above=0.0)
        _check_number("llama3 scaling", "low", self.low, above=0.0)
        _check_number("llama3 scaling", "high", self.high, above=self.low)
        _check_sizes("llama3 scaling", trained=self.trained)


class YarnScaling(Spec, frozen=True):
    """YaRN: frequencies blended by their rotations within the trained context; scores sharpened by `sharpen`."""

    factor: float
    trained: int
    fast: float = 32.0
    slow: float = 1.0
    sharpen: float | None = None  # None: the paper's 0.1 · ln(factor) + 1
    whole: bool = True  # blend between whole pairs, as released configs do without `truncate: false`

    def __post_init__(self) -> None:
        _check_number("yarn scaling", "factor", self.factor, above=0.0)
        _check_number("yarn scaling", "slow", self.slow, above=0.0)
        _check_number("yarn scaling", "fast", self.fast, above=self.slow)
        _check_sizes("yarn scaling", trained=self.trained)


Scaling: TypeAlias = NoScaling | LinearScaling | Llama3Scaling | YarnScaling


class Rotary(Spec, frozen=True):
    """q and k are rotated by pos · base^(−2i/K), so that their product depends only on the distance (RoPE)."""

    base: float = 10_000.0
    scaling: Scaling = NoScaling()

    def __post_init__(self) -> None:
        _check_number("rotary", "base", self.base, above=1.0)


class Buckets(Spec, frozen=True):
    """Added to scores: one learned bias per head and bucket of distance (T5)."""

    count: int = 32
    distance: int = 128  # all distances from here on share the last bucket

    def __post_init__(self) -> None:
        _check_sizes("buckets", count=self.count, distance=self.distance)
        if self.count % 4 or self.distance <= self.count // 2:
            raise SpecError(
                f"buckets: count={self.count}, distance={self.distance} are not valid; "
                f"use a count that is a multiple of 4 and a distance above half of it"
            )


class Alibi(Spec, frozen=True):
    """Added to scores: each head subtracts its own slope times the distance; nothing is learned."""


Position: TypeAlias = NoPosition | Sinusoid | Learned | Rotary | Buckets | Alibi


# --- the parts of a block -----------------------------------------------------------------------------------------


class AttentionSpec(Spec, frozen=True):
    """H query heads over G key/value heads, each K wide."""

    heads: int
    kv_heads: int
    head_width: int
    bias: bool = True  # on q, k and v
    out_bias: bool = True
    scale: float | None = None  # None: K^-½; T5: 1, the scale is in its weights
    qk_norm: NormSpec | None = None  # Qwen3: norm of q and k per head, before the rotation
    window: int | None = None  # sliding window: positions that a query of a decoder sees, itself included

    def __post_init__(self) -> None:
        _check_sizes("attention", heads=self.heads, kv_heads=self.kv_heads, head_width=self.head_width)
        if self.heads % self.kv_heads:
            ways = ", ".join(str(g) for g in range(1, min(self.heads, 256) + 1) if self.heads % g == 0)
            raise SpecError(
                f"heads={self.heads} is not a multiple of kv_heads={self.kv_heads}; use kv_heads in {{{ways}}}"
            )
        if self.scale is not None:
            _check_number("attention", "scale", self.scale, above=0.0)
        if self.window is not None:
            _check_sizes("attention", window=self.window)

    @property
    def score_scale(self) -> float:
        return self.head_width**-0.5 if self.scale is None else self.scale


class FeedForwardSpec(Spec, frozen=True):
    """down(act(up x)), or gated: down(act(gate x) · up x)"""

    width: int
    act: Act
    gated: bool = False
    bias: bool = True

    def __post_init__(self) -> None:
        _check_sizes("feed-forward", width=self.width)
        _check_choice("feed-forward", "act", self.act, Act)


class StackSpec(Spec, frozen=True):
    """L blocks with the same sizes."""

    layers: int
    attention: AttentionSpec
    feedforward: FeedForwardSpec
    norm: NormSpec
    norm_at: NormAt
    final_norm: bool

    def __post_init__(self) -> None:
        _check_sizes("stack", layers=self.layers)
        _check_choice("stack", "norm_at", self.norm_at, NormAt)


class EmbeddingSpec(Spec, frozen=True):
    """norm(token · scale + segment + position)"""

    scale: float = 1.0
    kinds: int = 0  # number of segment ids: 2 in BERT; 0: none
    norm: NormSpec | None = None

    def __post_init__(self) -> None:
        _check_number("embedding", "scale", self.scale, above=0.0)
        if not 0 <= self.kinds <= LARGEST:
            raise SpecError(f"embedding: kinds={self.kinds} is out of range; use 0 or more")


# --- output heads ---------------------------------------------------------------------------------------------------


class NoHead(Spec, frozen=True):
    """The output is the hidden states."""


class Tied(Spec, frozen=True):
    """logits = (x · scale) Eᵀ with E the token embedding; `shift`: plus a fixed bias per token (BART, Marian)."""

    scale: float = 1.0
    shift: bool = False

    def __post_init__(self) -> None:
        _check_number("tied head", "scale", self.scale, above=0.0)


class Own(Spec, frozen=True):
    """logits = x Wᵀ with an output matrix of its own."""


class Transformed(Spec, frozen=True):
    """logits = norm(act(x W + b)) Eᵀ + b: BERT's masked-language-model head."""

    act: Act
    norm: NormSpec

    def __post_init__(self) -> None:
        _check_choice("transformed head", "act", self.act, Act)


class Pooled(Spec, frozen=True):
    """tanh(W x₀ + b): BERT's pooler, from the first token."""


class Classify(Spec, frozen=True):
    """One score per label from one token: out(act(dense x)), or out(x) where `act` is None."""

    labels: int
    pick: Pick
    act: Act | None = None
    bias: bool = True

    def __post_init__(self) -> None:
        _check_sizes("classify head", labels=self.labels)
        _check_choice("classify head", "pick", self.pick, Literal["first", "last"])
        if self.act is not None:
            _check_choice("classify head", "act", self.act, Act)


class Tag(Spec, frozen=True):
    """One score per label and token."""

    labels: int

    def __post_init__(self) -> None:
        _check_sizes("tag head", labels=self.labels)


def is_tag(label: str) -> bool:
    """O, B-x or I-x are labels of tokens; other labels of a `Tag` head are of the whole text."""
    return label == "O" or (label[:2] in ("B-", "I-") and len(label) > 2)


class Span(Spec, frozen=True):
    """Two scores per token: an answer begins here, ends here."""


Head: TypeAlias = NoHead | Tied | Own | Transformed | Pooled | Classify | Tag | Span
LanguageHead: TypeAlias = Tied | Own | Transformed


# --- the whole ------------------------------------------------------------------------------------------------------


class ModelSpec(Spec, frozen=True):
    """An encoder, a decoder, or both; with both, every decoder block has cross-attention."""

    width: int
    vocab: int
    context: int  # max positions of a text
    position: Position
    head: Head
    embedding: EmbeddingSpec = EmbeddingSpec()
    encoder: StackSpec | None = None
    decoder: StackSpec | None = None
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _check_sizes("model", width=self.width, vocab=self.vocab, context=self.context)
        if isinstance(self.dropout, bool) or not 0.0 <= self.dropout < 1.0:
            raise SpecError(f"model: dropout={self.dropout!r} is out of range; use 0 or more, below 1")
        if not self.stacks:
            raise SpecError("model: neither encoder nor decoder is given; give one or both")
        self._check_positions()
        self._check_head()
        if self.encoder is not None and self.encoder.attention.window is not None:
            raise SpecError("model: window is for decoders; an encoder sees both sides of every position")
        if self.decoder is not None and self.encoder is not None and self.embedding.kinds:
            raise SpecError("model: segment ids are for models with one stack; use kinds=0")

    @property
    def form(self) -> Form:
        if self.encoder is not None and self.decoder is not None:
            return "encoder-decoder"
        return "encoder" if self.encoder is not None else "decoder"

    @property
    def stacks(self) -> dict[str, StackSpec]:
        """The stacks of this model by name, encoder first."""
        stacks = {"encoder": self.encoder, "decoder": self.decoder}
        return {name: stack for name, stack in stacks.items() if stack is not None}

    def _check_positions(self) -> None:
        for name, stack in self.stacks.items():
            width = stack.attention.head_width
            if isinstance(self.position, Rotary) and width % 2:
                raise SpecError(f"{name}: rotary rotates pairs, head_width={width} is odd; use an even one")
        if isinstance(self.position, Sinusoid) and self.width % 2:
            raise SpecError(f"model: sinusoids come in pairs, width={self.width} is odd; use an even one")

    def _check_head(self) -> None:
        if isinstance(self.head, Pooled | Tag | Span) and self.form != "encoder":
            raise SpecError(
                f"model: a {type(self.head).__name__} head needs an encoder, this model has the form {self.form!r}"
            )
        if isinstance(self.head, Classify):
            if self.form == "encoder-decoder":
                raise SpecError("model: a Classify head needs a single stack; use an encoder or a decoder")
            if self.form == "decoder" and self.head.pick == "first":
                raise SpecError("model: the first token of a decoder sees only itself; use pick='last'")


def to_json(spec: ModelSpec) -> str:
    return msgspec.json.encode(spec).decode()


def from_json(text: str | bytes) -> ModelSpec:
    try:
        return msgspec.json.decode(text, type=ModelSpec)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"this is not a model spec: {error}") from None


AnySpec = TypeVar("AnySpec", bound=Spec)


def replace(spec: AnySpec, **changes: object) -> AnySpec:
    """The same value with these fields changed; validated again."""
    return msgspec.structs.replace(spec, **changes)
