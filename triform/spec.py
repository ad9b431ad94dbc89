"""What a model is: frozen values, checked when made, equal when equal, and at home in JSON.

Owns the words of every other room (`width heads kv_heads head_width ff_width layers vocab context`).
Refuses to know torch, files, weight names and other projects' words.
"""

from typing import Literal, TypeAlias, TypeVar, get_args

import msgspec

from triform.errors import SpecError

Act: TypeAlias = Literal["relu", "gelu", "gelu-tanh", "silu", "tanh"]
NormAt: TypeAlias = Literal["pre", "post", "sandwich"]
Pick: TypeAlias = Literal["each", "first", "last"]
Form: TypeAlias = Literal["encoder", "decoder", "encoder-decoder"]

LARGEST = 2**40  # no size in a spec may pass it: a damaged file must not ask for more than an address space


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A frozen value; exclusive options are a union of these, told apart by their name."""


def _positive(owner: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= LARGEST:
            raise SpecError(f"{owner}: {name}={size!r} is not a size; use a whole number from 1 up")


def _one_of(owner: str, name: str, value: str, kinds: object) -> None:
    known = get_args(kinds)
    if value not in known:
        raise SpecError(f"{owner}: {name}={value!r} is not known; use one of {', '.join(known)}")


def _number(owner: str, name: str, value: float, *, above: float, below: float = float("inf")) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not above < value < below:
        raise SpecError(f"{owner}: {name}={value!r} is out of range; use a number between {above:g} and {below:g}")


# --- norms --------------------------------------------------------------------------------------------------------


class NormSpec(Spec, frozen=True):
    """layer: (x − mean) / √(var + eps) · γ + β;  rms: x / √(mean x² + eps) · γ"""

    kind: Literal["layer", "rms"] = "layer"
    eps: float = 1e-5

    def __post_init__(self) -> None:
        _one_of("norm", "kind", self.kind, Literal["layer", "rms"])
        _number("norm", "eps", self.eps, above=0.0, below=1.0)


# --- positions: three doors ---------------------------------------------------------------------------------------


class NoPosition(Spec, frozen=True):
    """The model has no sense of order (but a causal mask still gives a decoder some)."""


class Sinusoid(Spec, frozen=True):
    """First door. sin and cos of pos / 10000^(2i/D), interleaved as in the paper or in two halves as Marian stores."""

    layout: Literal["interleaved", "halves"] = "interleaved"

    def __post_init__(self) -> None:
        _one_of("sinusoid", "layout", self.layout, Literal["interleaved", "halves"])


class Learned(Spec, frozen=True):
    """First door. A trained vector for each position; `reserved` rows stand before position 0 (RoBERTa and BART: 2)."""

    reserved: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.reserved <= 1024:
            raise SpecError(f"learned positions: reserved={self.reserved} is out of range; use 0 to 1024")


class NoScaling(Spec, frozen=True):
    """Rotary angles as they were trained."""


class LinearScaling(Spec, frozen=True):
    """Every angle divided by `factor`: positions are interpolated."""

    factor: float

    def __post_init__(self) -> None:
        _number("linear scaling", "factor", self.factor, above=0.0)


class Llama3Scaling(Spec, frozen=True):
    """Slow angles divided by `factor`, fast ones left, a smooth passage between (Llama 3.1)."""

    factor: float
    low: float
    high: float
    trained: int  # the context the model was first trained with

    def __post_init__(self) -> None:
        _number("llama3 scaling", "factor", self.factor, above=0.0)
        _number("llama3 scaling", "low", self.low, above=0.0)
        _number("llama3 scaling", "high", self.high, above=self.low)
        _positive("llama3 scaling", trained=self.trained)


class YarnScaling(Spec, frozen=True):
    """Angles blended by how often they turn within the trained context; attention made sharper by `sharpen`."""

    factor: float
    trained: int
    fast: float = 32.0
    slow: float = 1.0
    sharpen: float | None = None  # None: the paper's 0.1 · ln(factor) + 1
    whole: bool = True  # blend between whole pairs, as released configs do unless they say `truncate: false`

    def __post_init__(self) -> None:
        _number("yarn scaling", "factor", self.factor, above=0.0)
        _number("yarn scaling", "slow", self.slow, above=0.0)
        _number("yarn scaling", "fast", self.fast, above=self.slow)
        _positive("yarn scaling", trained=self.trained)


Scaling: TypeAlias = NoScaling | LinearScaling | Llama3Scaling | YarnScaling


class Rotary(Spec, frozen=True):
    """Second door. q and k are turned by pos · base^(−2i/K), so their product knows only the distance."""

    base: float = 10_000.0
    scaling: Scaling = NoScaling()

    def __post_init__(self) -> None:
        _number("rotary", "base", self.base, above=1.0)


class Buckets(Spec, frozen=True):
    """Third door. A trained number per head for each bucket of distance (T5)."""

    count: int = 32
    distance: int = 128  # from here on all distances share the last bucket

    def __post_init__(self) -> None:
        _positive("buckets", count=self.count, distance=self.distance)
        if self.count % 4 or self.distance <= self.count // 2:
            raise SpecError(
                f"buckets: count={self.count}, distance={self.distance} cannot be shared out; "
                f"use a multiple of 4 and a distance above half of it"
            )


class Alibi(Spec, frozen=True):
    """Third door. Each head subtracts its own slope times the distance; nothing is trained."""


Position: TypeAlias = NoPosition | Sinusoid | Learned | Rotary | Buckets | Alibi


# --- the parts of a block -----------------------------------------------------------------------------------------


class AttentionSpec(Spec, frozen=True):
    """H query heads over G key/value heads, each K wide."""

    heads: int
    kv_heads: int
    head_width: int
    bias: bool = True  # on q, k and v
    out_bias: bool = True
    scale: float | None = None  # None: K^-½; T5: 1, its weights have swallowed it
    qk_norm: NormSpec | None = None  # Qwen3: each head's q and k normed before they are turned
    window: int | None = None  # how many positions back a query of a decoder sees, itself included

    def __post_init__(self) -> None:
        _positive("attention", heads=self.heads, kv_heads=self.kv_heads, head_width=self.head_width)
        if self.heads % self.kv_heads:
            ways = ", ".join(str(g) for g in range(1, min(self.heads, 256) + 1) if self.heads % g == 0)
            raise SpecError(
                f"heads={self.heads} is not a multiple of kv_heads={self.kv_heads}; use kv_heads in {{{ways}}}"
            )
        if self.scale is not None:
            _number("attention", "scale", self.scale, above=0.0)
        if self.window is not None:
            _positive("attention", window=self.window)

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
        _positive("feed-forward", width=self.width)
        _one_of("feed-forward", "act", self.act, Act)


class StackSpec(Spec, frozen=True):
    """L blocks, all alike."""

    layers: int
    attention: AttentionSpec
    feedforward: FeedForwardSpec
    norm: NormSpec
    norm_at: NormAt
    final_norm: bool

    def __post_init__(self) -> None:
        _positive("stack", layers=self.layers)
        _one_of("stack", "norm_at", self.norm_at, NormAt)


class EmbeddingSpec(Spec, frozen=True):
    """norm(token · scale + kind + position)"""

    scale: float = 1.0
    kinds: int = 0  # BERT's two segment kinds; 0: none
    norm: NormSpec | None = None

    def __post_init__(self) -> None:
        _number("embedding", "scale", self.scale, above=0.0)
        if not 0 <= self.kinds <= LARGEST:
            raise SpecError(f"embedding: kinds={self.kinds} is out of range; use 0 or more")


# --- heads: what is read from hidden states -------------------------------------------------------------------------


class NoHead(Spec, frozen=True):
    """The hidden states themselves."""


class Tied(Spec, frozen=True):
    """logits = (x · scale) Eᵀ with E the token embedding itself; `shift`: fixed numbers added (BART, Marian)."""

    scale: float = 1.0
    shift: bool = False

    def __post_init__(self) -> None:
        _number("tied head", "scale", self.scale, above=0.0)


class Own(Spec, frozen=True):
    """logits = x Wᵀ with a matrix of its own."""


class Transformed(Spec, frozen=True):
    """logits = norm(act(x W + b)) Eᵀ + b: BERT's head for masked words."""

    act: Act
    norm: NormSpec

    def __post_init__(self) -> None:
        _one_of("transformed head", "act", self.act, Act)


class Pooled(Spec, frozen=True):
    """tanh(W x₀ + b): BERT's summary of the first token."""


class Classify(Spec, frozen=True):
    """One score a label from one token: out(act(dense x)), or out(x) where `act` is None."""

    labels: int
    pick: Pick
    act: Act | None = None
    bias: bool = True

    def __post_init__(self) -> None:
        _positive("classify head", labels=self.labels)
        _one_of("classify head", "pick", self.pick, Literal["first", "last"])
        if self.act is not None:
            _one_of("classify head", "act", self.act, Act)


class Tag(Spec, frozen=True):
    """One score a label for each token."""

    labels: int

    def __post_init__(self) -> None:
        _positive("tag head", labels=self.labels)


def is_tag(label: str) -> bool:
    """O, B-x or I-x, which a head says of a token; other labels of a `Tag` head are of the whole text."""
    return label == "O" or (label[:2] in ("B-", "I-") and len(label) > 2)


class Span(Spec, frozen=True):
    """Two scores for each token: an answer begins here, ends here."""


Head: TypeAlias = NoHead | Tied | Own | Transformed | Pooled | Classify | Tag | Span
LanguageHead: TypeAlias = Tied | Own | Transformed


# --- the whole ------------------------------------------------------------------------------------------------------


class ModelSpec(Spec, frozen=True):
    """An encoder, a decoder, or both; both means cross-attention in every block of the decoder."""

    width: int
    vocab: int
    context: int  # the most positions one text may have
    position: Position
    head: Head
    embedding: EmbeddingSpec = EmbeddingSpec()
    encoder: StackSpec | None = None
    decoder: StackSpec | None = None
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _positive("model", width=self.width, vocab=self.vocab, context=self.context)
        if isinstance(self.dropout, bool) or not 0.0 <= self.dropout < 1.0:
            raise SpecError(f"model: dropout={self.dropout!r} is out of range; use 0 or more, below 1")
        if not self.stacks:
            raise SpecError("model: neither encoder nor decoder is given; give one of them, or both")
        self._check_positions()
        self._check_head()
        if self.encoder is not None and self.encoder.attention.window is not None:
            raise SpecError("model: window is for decoders; the encoder sees both sides of every position")
        if self.decoder is not None and self.encoder is not None and self.embedding.kinds:
            raise SpecError("model: segment kinds are for models with one stack; use kinds=0")

    @property
    def form(self) -> Form:
        if self.encoder is not None and self.decoder is not None:
            return "encoder-decoder"
        return "encoder" if self.encoder is not None else "decoder"

    @property
    def stacks(self) -> dict[str, StackSpec]:
        """The stacks that are there, in the order the data meets them."""
        named = {"encoder": self.encoder, "decoder": self.decoder}
        return {name: stack for name, stack in named.items() if stack is not None}

    def _check_positions(self) -> None:
        for name, stack in self.stacks.items():
            attention = stack.attention
            if isinstance(self.position, Rotary) and attention.head_width % 2:
                raise SpecError(
                    f"{name}: rotary turns pairs, head_width={attention.head_width} is odd; use an even one"
                )
        if isinstance(self.position, Sinusoid) and self.width % 2:
            raise SpecError(f"model: sinusoids come in pairs, width={self.width} is odd; use an even one")

    def _check_head(self) -> None:
        if isinstance(self.head, Pooled | Tag | Span) and self.form != "encoder":
            raise SpecError(
                f"model: a {type(self.head).__name__} head reads an encoder, this is the form {self.form!r}"
            )
        if isinstance(self.head, Classify):
            if self.form == "encoder-decoder":
                raise SpecError("model: a Classify head reads one stack; use an encoder or a decoder")
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
    """The same value but for these fields; checked again."""
    return msgspec.structs.replace(spec, **changes)
