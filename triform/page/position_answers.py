"""The position encoding of a stack in this model's numbers: added to embeddings, to q and k, or to the scores."""

from typing import Any

import torch

from triform.core.blocks import Stack
from triform.core.positions import AlibiBias, BucketBias, RotaryAngles
from triform.page.rounding import round_to_lists
from triform.spec import Alibi, Buckets, ModelSpec, NoPosition

MAX_COLUMNS = 128  # drawn of a position's vector
MAX_DISTANCE = 160  # drawn in both directions


@torch.no_grad()
def describe_positions(spec: ModelSpec, stack: Stack, *, count: int) -> dict[str, Any]:
    """How a stack represents positions, as numbers to draw."""
    count = min(count, spec.context)
    kind = type(spec.position).__name__.lower()
    shared = {"kind": kind, "count": count, "width": spec.embedding_width}
    turning = [angles for angles in stack.angles.children() if isinstance(angles, RotaryAngles)]
    if turning:
        return shared | {"kind": "rotary"} | describe_rotation(turning[-1])
    if isinstance(spec.position, Buckets | Alibi) and isinstance(stack.score_bias, BucketBias | AlibiBias):
        return shared | describe_score_bias(stack.score_bias, far=min(MAX_DISTANCE, spec.context - 1))
    if isinstance(spec.position, NoPosition):
        return shared
    return shared | describe_added_vectors(spec, stack, count)


def describe_added_vectors(spec: ModelSpec, stack: Stack, count: int) -> dict[str, Any]:
    """Added to the embeddings: the vectors, and the cosine of every pair."""
    at = torch.arange(count, device=next(stack.parameters()).device)[None]
    position = stack.entry.position
    vectors = position(torch.zeros(1, count, spec.embedding_width, dtype=torch.float64, device=at.device), at)[
        0
    ].double()
    unit = vectors / vectors.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    step = max(1, -(-spec.embedding_width // MAX_COLUMNS))
    columns = list(range(0, spec.embedding_width, step))
    return {
        "vectors": round_to_lists(vectors[:, columns].cpu().numpy()),
        "columns": columns,
        "alike": round_to_lists((unit @ unit.T).cpu().numpy()),
    }


def describe_rotation(angles: RotaryAngles) -> dict[str, Any]:
    """Rotary: the angle of each pair in q and k per position."""
    return {"frequencies": list(angles.frequencies), "sharpen": angles.sharpen}


def describe_score_bias(bias: BucketBias | AlibiBias, *, far: int) -> dict[str, Any]:
    """Added to the scores: the bias of each head, over the distance from query to key."""
    keys = torch.arange(2 * far + 1, device=find_device(bias))
    numbers = bias.bias(torch.tensor([[far]], device=keys.device), keys)[0, :, 0]
    shown = {"distances": (keys - far).tolist(), "bias": round_to_lists(numbers.double().cpu().numpy())}
    if isinstance(bias, AlibiBias):
        return shown | {"slopes": list(bias.slopes)}
    weights = round_to_lists(bias.weight.double().cpu().numpy())
    return shown | {"buckets": bias.bucket(keys - far).tolist(), "weights": weights}


def find_device(module: torch.nn.Module) -> torch.device:
    return next((x.device for x in module.parameters()), torch.device("cpu"))
