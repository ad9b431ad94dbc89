"""The attention formula and the causal mask, one line each: the reference of the lessons."""

import torch
from torch import Tensor

from triform.core import masks


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(Q Kᵀ / √d_k) V, tokens as rows"""
    return (q @ k.T / k.shape[1] ** 0.5).softmax(dim=-1) @ v


def causal_mask(length: int) -> Tensor:
    """0 where key j ≤ query i, else −inf: the mask of the library"""
    cpu = torch.device("cpu")
    return masks.causal_view(length, cpu, window=None).sight(torch.float64).matrix(length, length)[0, 0]
