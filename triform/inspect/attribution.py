"""Which tokens and components an answer comes from: gradients, integrated gradients, rollout, and logits split exactly.

attribution = Attribution(model, "The film was", AnswerScore(" good"))
attribution.gradients("L3")              d answer / d activations, tokens × width
attribution.gradient_times_input()       one number per token
attribution.integrated_gradients()       the same along the way from no token at all; `.error` is what is missing
roll_out_attention(view)                 attention through all layers, tokens × tokens
split_logits(view, " Paris")             what every component adds to a logit
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from triform.core.norms import LayerNorm
from triform.core.output_heads import LanguageHead, TransformedHead
from triform.core.texts import Text
from triform.errors import InputError
from triform.inspect import module_paths
from triform.inspect.labelled_array import ArrayAxis, LabelledArray
from triform.inspect.location_taps import PassPositions, tap_location
from triform.inspect.locations import Location, locate
from triform.inspect.measures import AnswerScore, Measure
from triform.inspect.model_answers import ReadText, check_one_token, find_kind, read_scores, read_text, run_network
from triform.inspect.module_paths import StackName
from triform.inspect.token_labels import TextOrIds, token_label
from triform.inspect.view import View, check_language_head
from triform.model import Model
from triform.precision import relative_error

STEPS = 64  # of the way from no token to the text


Baseline: TypeAlias = Literal["mean", "zeros"]


class Way(NamedTuple):
    """Points on the straight way from a baseline to vectors: row i of [points, T, W] goes its share of the way."""

    shares: Tensor
    baseline: Baseline

    def begin(self, x: Tensor) -> Tensor:
        return x.mean(1, keepdim=True).expand_as(x) if self.baseline == "mean" else torch.zeros_like(x)

    def points(self, x: Tensor) -> Tensor:
        begin = self.begin(x)
        return begin + (x - begin) * self.shares.to(x)[:, None, None]


@dataclass(frozen=True, eq=False)
class Attribution:
    """An answer of a model to one text, as a number (`measure`): by default the score of the likeliest answer."""

    model: Model
    text: TextOrIds
    measure: Measure | None = None
    target: TextOrIds | None = None
    position: int | None = None

    @cached_property
    def read(self) -> ReadText:
        return read_text(self.model, self.text, self.target, position=self.position)

    @cached_property
    def objective(self) -> Measure:
        """The measure, or the score of the likeliest answer."""
        if self.measure is not None:
            return self.measure
        if find_kind(self.model) == "vector":
            raise InputError("this model answers with a vector; name a measure, a function of it as a number")
        with torch.no_grad():
            return AnswerScore(int(self.run_text()[0].argmax()))

    def gradients(self, where: str | Location) -> LabelledArray:
        """d measure / d activations, tokens × width."""
        location = locate(self.model.network, where)
        _, gradient = self.differentiate(location)
        axes = self.token_axis(location), ArrayAxis.numbered("width", gradient.shape[-1])
        return LabelledArray.from_tensor(gradient, axes, title=f"gradient of {self.objective} at {location}")

    def gradient_times_input(self, where: str | Location | None = None) -> LabelledArray:
        """Σ gradient · activation of each token; without a location, of the embeddings."""
        location = self.entry if where is None else locate(self.model.network, where)
        vectors, gradient = self.differentiate(location)
        title = f"gradient × input of {self.objective} at {location}"
        return LabelledArray.from_tensor((vectors * gradient).sum(-1), [self.token_axis(location)], title=title)

    def integrated_gradients(self, *, steps: int = STEPS, baseline: Baseline = "mean") -> LabelledArray:
        """The mean gradient on the straight way from a baseline to the embeddings, times the way: the numbers sum to
        measure(text) − measure(baseline), and `error` is by how much they miss it. The baseline is the mean of the
        text's embeddings at every token, or zeros, where norms without a mean (RMS) make a jump."""
        if steps < 1:
            raise InputError(f"steps={steps} is too few; use at least 1")
        if baseline not in ("mean", "zeros"):
            raise InputError(f"baseline={baseline!r} is unknown; use 'mean' or 'zeros'")
        shares = (torch.arange(steps, dtype=torch.float64) + 0.5) / steps
        way, gradient = self.differentiate(self.entry, Way(shares, baseline))
        parts = (way * gradient).sum(-1)
        ends = self.measure_on(Way(torch.tensor([0.0, 1.0]), baseline))
        error = abs(float(parts.sum()) - float(ends[1] - ends[0]))
        title = f"integrated gradients of {self.objective}"
        return LabelledArray.from_tensor(parts, [self.token_axis(self.entry)], title=title, error=error)

    # --- passes -----------------------------------------------------------------------------------------------------

    @property
    def entry(self) -> Location:
        """The embeddings of the text that is read first."""
        return Location(f"{next(iter(self.model.spec.stacks))}.entry")

    def differentiate(self, location: Location, way: "Way | None" = None) -> tuple[Tensor, Tensor]:
        """The vectors at the location and the gradient of the measure there, [T, W]; on a way, the way itself and the
        mean gradient on it."""
        leaves: list[Tensor] = []
        steps: list[Tensor] = []
        objective = self.objective

        def watch(x: Tensor, positions: PassPositions) -> Tensor:
            x = x.detach()
            steps.append(x[0] if way is None else (x - way.begin(x))[0])
            leaves.append((x if way is None else way.points(x)).requires_grad_())
            return leaves[-1]

        with torch.enable_grad(), tap_location(self.model.network, location, watch):
            values = self.measure_rows(objective, self.run_text(1 if way is None else len(way.shares)))
            (gradient,) = torch.autograd.grad(values.sum(), leaves[-1:])
        return steps[-1], gradient.mean(0)

    @torch.no_grad()
    def measure_on(self, way: "Way") -> Tensor:
        """The measure at some points of the way."""
        objective = self.objective
        with tap_location(self.model.network, self.entry, lambda x, positions: way.points(x)):
            return self.measure_rows(objective, self.run_text(len(way.shares)))

    def run_text(self, rows: int = 1) -> Tensor:
        """Scores of so many copies of the text."""
        text = Text(self.read.ids.repeat(rows, 1), self.read.kinds.repeat(rows, 1))
        target = None if self.read.target is None else Text.of(self.read.target.repeat(rows, 1))
        hidden = run_network(self.model, text, target)
        return read_scores(self.model, text if target is None else target, hidden, self.read.position)

    def measure_rows(self, objective: Measure, scores: Tensor) -> Tensor:
        return objective.measure(self.model, scores[:, None], scores[-1:].detach(), [0])[:, 0]

    def token_axis(self, location: Location) -> ArrayAxis:
        of_target = self.read.target is not None and location.stack == "decoder"
        ids = (self.read.target if of_target else self.read.ids)[0].tolist()  # type: ignore[index]
        tokenizer = self.model.tokenizer
        tokenizer = tokenizer.target if tokenizer is not None and of_target else tokenizer
        return ArrayAxis("token", tuple(token_label(id, tokenizer) for id in ids))


# --- attention through all layers -----------------------------------------------------------------------------------


def roll_out_attention(view: View, *, stack: StackName | None = None) -> LabelledArray:
    """Π (A + I) / 2 over the layers, A the mean over heads: how much of each input token is in each output token."""
    name = module_paths.check_stack(view.network, stack)
    labels = view.texts[name].labels
    rolled = np.eye(len(labels))
    for layer in range(view.spec.stacks[name].layers):
        weights = view.attention(layer, stack=name).values.mean(0)  # type: ignore[arg-type]
        rolled = (weights + np.eye(len(labels))) / 2 @ rolled
    return LabelledArray("attention rollout", (ArrayAxis("output", labels), ArrayAxis("input", labels)), rolled)


# --- logits, split --------------------------------------------------------------------------------------------------


def split_logits(
    view: View, token: str | int, against: str | int | None = None, *, position: int = -1
) -> LabelledArray:
    """What every component adds to the logit of a token, or to its lead over another: embedding, heads, biases and
    feed-forwards. The final norm's scale is that of this run, so the parts sum to the logit; `error` is the difference.
    """
    check_language_head(view.spec)
    final = view.network.get_submodule(f"{module_paths.check_stack(view.network, None)}.final")
    direction, constant = find_direction(view, token, against)
    count = len(view.predicted_text.ids)
    if not -count <= position < count:
        raise InputError(f"position {position} is not in this text; its positions are 0 to {count - 1}")
    names, vectors = zip(*iterate_components(view, position % count), strict=True)
    projected = [project(vector, final, torch.stack(vectors).sum(0)) @ direction for vector in vectors]
    shift = getattr(final, "bias", None)
    parts = [*projected, constant + (shift.double() @ direction if isinstance(shift, Tensor) else 0.0)]
    values = torch.stack([torch.as_tensor(part, dtype=torch.float64) for part in parts]).detach()
    ids = [find_token(view, name) for name in (token, against) if name is not None]
    logits = view.logits[0, position].double()
    whole = logits[ids[0]] - (logits[ids[1]] if len(ids) > 1 else 0.0)
    title = f"logit of {view.label(ids[0])!r}" + (f" minus that of {view.label(ids[1])!r}" if len(ids) > 1 else "")
    error = relative_error(values.sum(), whole)
    return LabelledArray.from_tensor(values, [ArrayAxis("component", (*names, "constants"))], title=title, error=error)


def find_direction(view: View, token: str | int, against: str | int | None) -> tuple[Tensor, Tensor]:
    """The vector that the final stream is multiplied with, and the head's own bias."""
    head = view.network.readout
    if not isinstance(head, LanguageHead) or isinstance(head, TransformedHead):
        raise InputError("this head is not linear, so its logits cannot be split; use gradients")
    weight, bias = head.weight(view.network.token.weight), head.bias()
    ids = [find_token(view, name) for name in (token, against) if name is not None]
    signs = (1.0, -1.0)[: len(ids)]
    rows = sum(sign * weight[id].double() for sign, id in zip(signs, ids, strict=True))
    constant = (
        sum((sign * bias[id].double() for sign, id in zip(signs, ids, strict=True)), torch.zeros(()))
        if bias is not None
        else torch.zeros(())
    )
    scale = float(head.ready(torch.ones(1, weight.shape[1], dtype=weight.dtype))[0, 0])
    return torch.as_tensor(rows).detach() * scale, torch.as_tensor(constant).detach()


def find_token(view: View, name: str | int) -> int:
    return name if isinstance(name, int) else check_one_token(view.tokenizer, name)


def iterate_components(view: View, position: int) -> Iterator[tuple[str, Tensor]]:
    """Everything that is added to the stream at one position, by name, [D]"""
    stack = module_paths.check_stack(view.network, None)
    spec = view.spec.stacks[stack]
    if spec.norm_at != "pre":
        raise InputError(
            f"this stack has its norms {spec.norm_at!r}; only with pre-norm is the stream a sum of its parts"
        )
    one = slice(position, position + 1)
    yield "embedding", view.record.last_call(f"{stack}.entry").output[0, position].double()
    for layer in range(spec.layers):
        block = view.network.get_submodule(f"{stack}.blocks.{layer}")
        for part, _ in block.named_children():
            if part == "feedforward":
                yield (
                    f"L{layer} feedforward",
                    view.record.last_call(f"{stack}.blocks.{layer}.{part}.drop").output[0, position].double(),
                )
                continue
            added = view.contributions(layer, kind="cross" if part == "cross" else "self", stack=stack, positions=one)  # type: ignore[arg-type]
            ending = " cross" if part == "cross" else ""
            for name, row in zip(added.axes[0].labels, added.values[:, 0], strict=True):
                label = f"L{layer}{ending} bias" if name == "bias" else f"L{layer}H{name}{ending}"
                yield label, torch.from_numpy(row.astype(np.float64))


def project(vector: Tensor, final: nn.Module, stream: Tensor) -> Tensor:
    """The final norm of one part of the stream, with the scale of the whole."""
    weight = getattr(final, "weight", None)
    if not isinstance(weight, Tensor):
        return vector
    centred = isinstance(final, LayerNorm)
    whole = stream - stream.mean() if centred else stream
    scale = (whole.square().mean() + float(final.eps)).rsqrt()  # type: ignore[arg-type]
    part = vector - vector.mean() if centred else vector
    return part * scale * weight.detach().double()
