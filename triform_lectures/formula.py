"""The formula and the mask, in a line each: what the lessons hold everything else against."""

import torch
from torch import Tensor

from triform.core import masks


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(Q Kᵀ / √d_k) V, tokens as rows"""
    return (q @ k.T / k.shape[1] ** 0.5).softmax(dim=-1) @ v


def causal(length: int) -> Tensor:
    """0 where key j ≤ query i, −inf behind it: the mask of the running code"""
    cpu = torch.device("cpu")
    return masks.triangle(length, cpu, window=None).sight(torch.float64).matrix(length, length)[0, 0]
