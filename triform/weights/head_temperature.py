"""A temperature written into the head: dividing its last weights by T divides its scores by T.

So there is one probability wherever the model is read: here, on the page, and in other software.
"""

from collections.abc import Sequence

import torch

from triform.core.forms import Form
from triform.spec import ModelSpec, Tag, is_tag

TEMPERATURE = "temperature"  # in the memo of folders that still carry it beside the head


def text_labels(spec: ModelSpec, labels: Sequence[str]) -> list[int]:
    """The numbers of the labels that are said of a whole text."""
    return [at for at, label in enumerate(labels) if not (isinstance(spec.head, Tag) and is_tag(label))]


@torch.no_grad()
def divide_head(network: Form, temperature: float, *, labels: Sequence[int]) -> None:
    """scores[labels] ← scores[labels] / temperature, in place."""
    named = dict(network.named_parameters())
    for path in ("readout.out.weight", "readout.out.bias"):
        if path in named:
            named[path][list(labels)] /= temperature
