"""Two layouts of rotary pairs: neighbours (x0, x1) as in Meta's files, llama2.c and GGUF; halves (x0, xK/2) in ours."""

from torch import Tensor


def half_split(x: Tensor, *, heads: int) -> Tensor:
    """Rows of q or k with neighbouring pairs, in the order of halves that our core and Hugging Face files use."""
    return x.view(heads, -1, 2, *x.shape[1:]).transpose(1, 2).reshape(x.shape)
