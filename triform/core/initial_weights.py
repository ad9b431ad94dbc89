"""Initial weights of an untrained network: they depend on the seed and the spec alone."""

import math

import torch
from torch import Tensor

from triform import spec as s
from triform.core.build import build_skeleton
from triform.core.forms import Form, Network


@torch.inference_mode(False)
def build_network(
    spec: s.ModelSpec, *, seed: int = 0, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Form:
    """A network with initial weights, in eval mode; trainable also when built inside `torch.inference_mode()`."""
    network = build_skeleton(spec).to_empty(device=device).to(dtype)
    initialize(network, spec, seed=seed)
    return network.eval()


def initialize(network: Network, spec: s.ModelSpec, *, seed: int) -> None:
    """Norms 1, biases 0, matrices normal with deviation 0.02 at width 768 (GPT-2), scaled by 1/√(fan in) elsewhere.

    Matrices that add to the residual stream are smaller by 1/√(number of additions): it does not grow with depth.
    """
    generator = torch.Generator().manual_seed(seed)
    for path, parameter in network.named_parameters():
        with torch.no_grad():
            if path.endswith(".bias") or path == "readout.free":
                parameter.zero_()
            elif parameter.dim() == 1:
                parameter.fill_(0.0 if has_norms_from_one(spec) else 1.0)
            else:
                # Drawn on the CPU in float64, so that every device and precision starts with the same weights.
                drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_(drawn * find_deviation(path, parameter, spec))
    for buffer in network.buffers():
        buffer.zero_()


def has_norms_from_one(spec: s.ModelSpec) -> bool:
    """The stored weight of a norm that leaves its input's scale is then 0, not 1."""
    return any(stack.norm.from_one for stack in spec.stacks.values())


def find_deviation(path: str, parameter: Tensor, spec: s.ModelSpec) -> Tensor | float:
    """The standard deviation of a matrix's initial weights; one per row where rows differ."""
    top = path.split(".", 1)[0]
    if path == "token.weight":
        return find_embedding_deviation(spec)
    if path == "readout.own" or ".entry." in path or path.endswith("score_bias.weight"):
        return 0.02
    sigma = torch.full((len(parameter), 1), 0.02 * math.sqrt(768 / parameter.shape[1]), dtype=torch.float64)
    if top == "readout":
        return sigma
    stack = spec.stacks[top]
    if path.endswith(("out.weight", "down.weight")):
        parts = 3 if top == "decoder" and spec.encoder is not None else 2
        sigma /= math.sqrt(parts * stack.layers)
    if path.endswith(("qkv.weight", "cross.f.q.weight")):
        # Without a scale on the scores (T5) the query weights start smaller by that scale.
        a = stack.attention
        sigma[: a.heads * a.head_width] *= a.head_width**-0.5 / a.score_scale
    return sigma


def find_embedding_deviation(spec: s.ModelSpec) -> float:
    """Where the family scales embeddings or a tied head, the scaled values have deviation 1; else 0.02."""
    if spec.embedding.scale != 1.0:
        return 1.0 / spec.embedding.scale
    return 1.0 if isinstance(spec.head, s.Tied) and spec.head.scale != 1.0 else 0.02
