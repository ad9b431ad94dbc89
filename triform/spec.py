"""The specification of a model: frozen values, validated when created, comparable, and readable and writable as JSON.

Defines the names that all other modules use (`width heads kv_heads head_width ff_width layers vocab context`).
Knows nothing of torch, files, and the names of other projects.
"""

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Literal, TypeAlias, TypeVar, get_args

import msgspec

from triform.errors import SpecError

Act: TypeAlias = Literal["relu", "gelu", "gelu-tanh", "gelu-sigmoid", "silu", "tanh", "relu2", "mish"]
NormAt: TypeAlias = Literal["pre", "post", "sandwich", "after"]
PartOrder: TypeAlias = Literal["in turn", "parallel"]
NormedOver: TypeAlias = Literal["head", "all heads"]
Pick: TypeAlias = Literal["each", "first", "last", "mean"]
NormKind: TypeAlias = Literal["layer", "rms"]
SinusoidLayout: TypeAlias = Literal["interleaved", "halves", "fairseq"]
Form: TypeAlias = Literal["encoder", "decoder", "encoder-decoder"]

MAX_SIZE = 2**40  # upper bound of every size: a damaged file must not request more than an address space


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=True):
    """A frozen value; exclusive options are a union of these, with the class name as the tag in JSON."""


def _check_sizes(owner: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= MAX_SIZE:
            raise SpecError(f"{owner}: {name}={size!r} is not a size; use a whole number from 1 up")


def _check_choice(owner: str, name: str, value: str, kinds: object) -> None:
    known = get_args(kinds)
    if value not in known:
        raise SpecError(f"{owner}: {name}={value!r} is not known; use one of {', '.join(known)}")


def _check_number(owner: str, name: str, value: float, *, above: float, below: float = float("inf")) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not above < value < below:
        raise SpecError(f"{owner}: {name}={value!r} is out of range; use a number between {above:g} and {below:g}")


def _check_dense(owner: str, act: str | None, norm: "NormSpec | None") -> None:
    if act is not None:
        _check_choice(owner, "act", act, Act)
    elif norm is not None:
        raise SpecError(f"{owner}: a norm stands after act(dense x); give act")


# --- norms --------------------------------------------------------------------------------------------------------


class NormSpec(Spec, frozen=True):
    """layer: (x − mean) / √(var + eps) · γ + β;  rms: x / √(mean x² + eps) · γ"""

    kind: NormKind = "layer"
    eps: float = 1e-5
    bias: bool = True  # β, of a layer norm
    from_one: bool = False  # the weight is γ − 1, of an RMS norm (Gemma)

    def __post_init__(self) -> None:
        _check_choice("norm", "kind", self.kind, NormKind)
        _check_number("norm", "eps", self.eps, above=0.0, below=1.0)
        if self.from_one and self.kind != "rms":
            raise SpecError("norm: from_one is for RMS norms; use kind='rms'")

    @property
    def has_bias(self) -> bool:
        return self.kind == "layer" and self.bias


# --- positions ----------------------------------------------------------------------------------------------------


class NoPosition(Spec, frozen=True):
    """No positions (a decoder still learns some order from its causal mask)."""


class Sinusoid(Spec, frozen=True):
    """Added to embeddings: sin and cos of pos / 10000^(2i/D), interleaved (paper) or in two halves (Marian); fairseq's
    halves reach 10000 itself, with i/(D/2 − 1), and count from `first` (M2M-100: 2)."""

    layout: SinusoidLayout = "interleaved"
    first: int = 0  # the number of the first position

    def __post_init__(self) -> None:
        _check_choice("sinusoid", "layout", self.layout, SinusoidLayout)
        if not 0 <= self.first <= 1024:
            raise SpecError(f"sinusoid: first={self.first} is out of range; use 0 to 1024")


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


class DynamicScaling(Spec, frozen=True):
    """A base that grows with texts longer than the context; such texts are not read, so angles are as trained."""

    factor: float

    def __post_init__(self) -> None:
        _check_number("dynamic scaling", "factor", self.factor, above=0.0)


class LongRopeScaling(Spec, frozen=True):
    """Every pair's frequency divided by a factor of its own (Phi-3): one of `short` in a model whose context is at
    most `trained`, else one of `long`. Released models switch with the length of each text; here a text never does."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    trained: int
    stretched: int  # the longest text that the long factors are for
    sharpen: float | None = None  # None: √(1 + ln(stretched / trained) / ln(trained))

    def __post_init__(self) -> None:
        _check_sizes("longrope scaling", trained=self.trained, stretched=self.stretched)
        if self.trained < 2:
            raise SpecError(f"longrope scaling: trained={self.trained} is too short; use 2 or more")
        if len(self.short) != len(self.long):
            raise SpecError(f"longrope scaling: {len(self.short)} short factors, {len(self.long)} long ones")
        for factor in (*self.short, *self.long):
            _check_number("longrope scaling", "a factor", factor, above=0.0)

    def factors(self, context: int) -> tuple[float, ...]:
        return self.short if context <= self.trained else self.long


Scaling: TypeAlias = NoScaling | LinearScaling | Llama3Scaling | YarnScaling | DynamicScaling | LongRopeScaling


class Rotary(Spec, frozen=True):
    """q and k are rotated by pos · base^(−2i/K), so that their product depends only on the distance (RoPE)."""

    base: float = 10_000.0
    scaling: Scaling = NoScaling()
    share: float = 1.0  # of each head's width; the rest is not rotated (GPT-NeoX: 0.25)

    def __post_init__(self) -> None:
        _check_number("rotary", "base", self.base, above=1.0)
        if isinstance(self.share, bool) or not 0.0 < self.share <= 1.0:
            raise SpecError(f"rotary: share={self.share!r} is out of range; use a number above 0, at most 1")

    def width(self, head_width: int) -> int:
        """How many numbers of a head are rotated, from the first on."""
        return int(head_width * self.share)


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
    qk_norm: NormSpec | None = None  # Qwen3: norm of q and k, before the rotation
    qk_normed_over: NormedOver = "head"  # each head by itself, or all heads of a position together (OLMo 2)
    window: int | None = None  # a query sees keys less than this far away: behind it, or in an encoder on both sides

    def __post_init__(self) -> None:
        _check_sizes("attention", heads=self.heads, kv_heads=self.kv_heads, head_width=self.head_width)
        if self.heads % self.kv_heads:
            ways = ", ".join(str(g) for g in range(1, min(self.heads, 256) + 1) if self.heads % g == 0)
            raise SpecError(
                f"heads={self.heads} is not a multiple of kv_heads={self.kv_heads}; use kv_heads in {{{ways}}}"
            )
        _check_choice("attention", "qk_normed_over", self.qk_normed_over, NormedOver)
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
    down_bias: bool | None = None  # None: as `bias`

    def __post_init__(self) -> None:
        _check_sizes("feed-forward", width=self.width)
        _check_choice("feed-forward", "act", self.act, Act)

    @property
    def has_down_bias(self) -> bool:
        return self.bias if self.down_bias is None else self.down_bias


class LayerKind(Spec, frozen=True):
    """What layers of one size may differ in: how far they see, and their rotary positions."""

    window: int | None = None  # as in AttentionSpec
    rotary: Rotary | NoPosition | None = None  # None: the model's own

    def __post_init__(self) -> None:
        if self.window is not None:
            _check_sizes("layer kind", window=self.window)


SPARE_POSITIONS = 160  # beside its window that a layer's cache holds, so that old ones are dropped rarely


def held_positions(window: int | None, positions: int) -> int:
    """Of how many positions of a text the cache of a layer has keys and values."""
    return positions if window is None else min(positions, window + SPARE_POSITIONS)


def shortest_pattern(kinds: Sequence[LayerKind]) -> tuple[LayerKind, ...]:
    """The shortest pattern that, repeated, gives these kinds; () where all are alike and as the model says."""
    period = next(p for p in range(1, len(kinds) + 1) if all(kinds[i] == kinds[i % p] for i in range(len(kinds))))
    return () if tuple(kinds[:period]) == (LayerKind(),) else tuple(kinds[:period])


class StackSpec(Spec, frozen=True):
    """L blocks with the same sizes; layer i is of the kind pattern[i mod P], or all are alike."""

    layers: int
    attention: AttentionSpec
    feedforward: FeedForwardSpec
    norm: NormSpec
    norm_at: NormAt
    final_norm: bool
    pattern: tuple[LayerKind, ...] = ()
    shared: bool = False  # one block for all layers (ALBERT)
    first_norm: bool = True  # False: the first layer's attention reads its input without a norm (ModernBERT)
    parts: PartOrder = "in turn"  # parallel: all parts of a block read the block's input (GPT-NeoX)
    added_scale: float = 1.0  # a factor on what each part adds (Granite)

    def __post_init__(self) -> None:
        _check_sizes("stack", layers=self.layers)
        if self.pattern and (self.attention.window is not None or len(self.pattern) > self.layers):
            raise SpecError(
                f"stack: a pattern of {len(self.pattern)} layer kinds is for {len(self.pattern)} layers or more "
                f"and has windows of its own; layers={self.layers}, attention window={self.attention.window}"
            )
        if self.shared and (self.pattern or not self.first_norm):
            raise SpecError("stack: shared layers are all alike; use pattern=() and first_norm=True")
        if not self.first_norm and self.norm_at != "pre":
            raise SpecError(f"stack: first_norm=False is for norm_at='pre', this is {self.norm_at!r}")
        _check_choice("stack", "norm_at", self.norm_at, NormAt)
        _check_choice("stack", "parts", self.parts, PartOrder)
        _check_number("stack", "added_scale", self.added_scale, above=0.0)
        if self.added_scale != 1.0 and self.norm_at in ("sandwich", "after"):
            raise SpecError(
                f"stack: a norm after each part has its own factor; with {self.norm_at!r} use added_scale=1"
            )


class EmbeddingSpec(Spec, frozen=True):
    """norm(token · scale + segment + position), and project(that) where the embeddings are narrower than the model"""

    scale: float = 1.0
    kinds: int = 0  # number of segment ids: 2 in BERT; 0: none
    norm: NormSpec | None = None
    width: int | None = None  # of token, segment and position; None: as wide as the model, and no projection

    def __post_init__(self) -> None:
        _check_number("embedding", "scale", self.scale, above=0.0)
        if self.width is not None:
            _check_sizes("embedding", width=self.width)
        if not 0 <= self.kinds <= MAX_SIZE:
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
    """logits = (x · scale) Wᵀ with an output matrix of its own."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_number("own head", "scale", self.scale, above=0.0)


class Transformed(Spec, frozen=True):
    """logits = norm(act(x W + b)) Eᵀ + b: BERT's masked-language-model head."""

    act: Act
    norm: NormSpec
    bias: bool = True  # the first b
    shift: bool = True  # the second b, one number per token

    def __post_init__(self) -> None:
        _check_choice("transformed head", "act", self.act, Act)


class Pooled(Spec, frozen=True):
    """tanh(W x₀ + b): BERT's pooler, from the first token."""


class Classify(Spec, frozen=True):
    """One score per label from one token, or from the mean of all: out(norm(act(dense x))), or out(x) without `act`."""

    labels: int
    pick: Pick
    act: Act | None = None
    bias: bool = True
    norm: NormSpec | None = None
    dense_bias: bool = True

    def __post_init__(self) -> None:
        _check_sizes("classify head", labels=self.labels)
        _check_choice("classify head", "pick", self.pick, Literal["first", "last", "mean"])
        _check_dense("classify head", self.act, self.norm)


class Tag(Spec, frozen=True):
    """One score per label and token: out(norm(act(dense x))), or out(x) where `act` is None."""

    labels: int
    act: Act | None = None
    norm: NormSpec | None = None
    dense_bias: bool = True

    def __post_init__(self) -> None:
        _check_sizes("tag head", labels=self.labels)
        _check_dense("tag head", self.act, self.norm)


def is_tag(label: str) -> bool:
    """O, B-x or I-x are labels of tokens; other labels of a `Tag` head are of the whole text."""
    return label == "O" or (label[:2] in ("B-", "I-") and len(label) > 2)


class Span(Spec, frozen=True):
    """Two scores per token, an answer begins here, ends here: out(norm(act(dense x))), or out(x) without `act`."""

    act: Act | None = None
    norm: NormSpec | None = None
    dense_bias: bool = True

    def __post_init__(self) -> None:
        _check_dense("span head", self.act, self.norm)


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
    score_bias: Buckets | Alibi | None = None  # beside a position that is added or rotates (MPNet)
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
        self._check_embedding()
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

    @property
    def embedding_width(self) -> int:
        return self.width if self.embedding.width is None else self.embedding.width

    @property
    def added_to_scores(self) -> Buckets | Alibi | None:
        """What is added to the scores, beside a position or as the only one."""
        return self.position if isinstance(self.position, Buckets | Alibi) else self.score_bias

    def layer_kinds(self, name: str) -> tuple[LayerKind, ...]:
        """The kind of every layer of a stack, with what the model says of all of them filled in; () without it."""
        stack = self.stacks.get(name)
        return () if stack is None else tuple(islice(cycle(self._fill_pattern(stack)), stack.layers))

    def _fill_pattern(self, stack: StackSpec) -> tuple[LayerKind, ...]:
        """The kinds that the layers of a stack repeat, with what the model says of all of them."""
        own = self.position if isinstance(self.position, Rotary) else NoPosition()
        pattern = stack.pattern or (LayerKind(window=stack.attention.window),)
        return tuple(LayerKind(window=kind.window, rotary=kind.rotary or own) for kind in pattern)

    def _check_positions(self) -> None:
        for name, stack in self.stacks.items():
            width = stack.attention.head_width
            for kind in self._fill_pattern(stack):
                if isinstance(kind.rotary, Rotary):
                    _check_rotary(name, kind.rotary, width)
        if isinstance(self.position, Sinusoid) and self.embedding_width % 2:
            raise SpecError(f"model: sinusoids come in pairs, width={self.embedding_width} is odd; use an even one")
        if isinstance(self.position, Sinusoid) and self.position.layout == "fairseq" and self.embedding_width < 4:
            raise SpecError(f"model: fairseq's sinusoids need two pairs at least, width={self.embedding_width} has one")
        if self.score_bias is not None and isinstance(self.position, Buckets | Alibi):
            raise SpecError("model: position and score_bias are both added to the scores; give one of them")
        if self.decoder is not None and self.decoder.shared:
            raise SpecError("model: shared layers are for encoders; each layer of a decoder has its own cache")

    def _check_embedding(self) -> None:
        if self.embedding.width is None:
            return
        if self.form == "encoder-decoder" or isinstance(self.head, Tied | Own):
            raise SpecError(
                f"model: embeddings {self.embedding.width} wide, narrower than the model, are for one stack and a head "
                f"that is not Tied or Own; use embedding.width=None"
            )

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


def _check_rotary(name: str, rotary: Rotary, head_width: int) -> None:
    width = rotary.width(head_width)
    if width % 2 or width == 0:
        share = "" if rotary.share == 1.0 else f" · share={rotary.share:g}"
        raise SpecError(f"{name}: rotary rotates pairs, head_width={head_width}{share} is odd; use an even one")
    if isinstance(rotary.scaling, LongRopeScaling) and width // 2 != len(rotary.scaling.short):
        factors = len(rotary.scaling.short)
        raise SpecError(f"{name}: {width // 2} pairs are rotated, longrope has {factors} factors; give one per pair")


def to_json(spec: ModelSpec) -> str:
    return msgspec.json.encode(spec).decode()


def from_json(text: str | bytes) -> ModelSpec:
    """A spec from its JSON."""
    try:
        return msgspec.json.decode(text, type=ModelSpec)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"this is not a model spec: {error}") from None


AnySpec = TypeVar("AnySpec", bound=Spec)


def replace(spec: AnySpec, **changes: object) -> AnySpec:
    """The same value with these fields changed; validated again."""
    return msgspec.structs.replace(spec, **changes)
