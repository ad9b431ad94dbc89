"""Stack, layer and head numbers checked and turned into module paths of a network."""

from typing import Literal, TypeAlias, cast

from triform.core.attention import CrossAttention, SelfAttention
from triform.core.blocks import Stack
from triform.core.forms import Form
from triform.errors import InputError

StackName: TypeAlias = Literal["encoder", "decoder"]
AttentionKind: TypeAlias = Literal["self", "cross"]

PARTS = {"self": "attention", "cross": "cross"}


def find_stacks(network: Form) -> dict[str, Stack]:
    """In the order of the data."""
    return {name: module for name, module in network.named_children() if isinstance(module, Stack)}


def check_stack(network: Form, stack: str | None) -> str:
    """The checked name; None is the last stack, whose output goes to the head."""
    names = list(find_stacks(network))
    if stack is None:
        return names[-1]
    if stack not in names:
        raise InputError(f"stack={stack!r} is not in this model; it has {' and '.join(names)}")
    return stack


def block_path(network: Form, layer: int, *, stack: str | None) -> str:
    """The path of a block; a layer that does not exist is an error."""
    name = check_stack(network, stack)
    layers = len(find_stacks(network)[name].blocks)
    if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < layers:
        raise InputError(f"layer {layer!r} is not in this {name}; its layers are 0 to {layers - 1}")
    return f"{name}.blocks.{layer}"


def attention_path(network: Form, layer: int, *, kind: str = "self", stack: str | None = None) -> str:
    """`decoder.blocks.3.attention.f`"""
    path = block_path(network, layer, stack=stack)
    if kind not in PARTS:
        raise InputError(f"kind={kind!r} is unknown; use 'self' or 'cross'")
    if kind == "cross" and not hasattr(network.get_submodule(path), "cross"):
        raise InputError("only the decoder of an encoder-decoder has cross-attention; here use kind='self'")
    return f"{path}.{PARTS[kind]}.f"


def get_attention(network: Form, path: str) -> SelfAttention | CrossAttention:
    return cast(SelfAttention | CrossAttention, network.get_submodule(path))


def check_head(network: Form, path: str, head: int) -> int:
    """The head, if this attention has it."""
    attention = get_attention(network, path)
    heads = attention.out.in_features // attention.head_width
    if isinstance(head, bool) or not isinstance(head, int) or not 0 <= head < heads:
        raise InputError(f"head {head!r} is not in {path.removesuffix('.f')}; its heads are 0 to {heads - 1}")
    return head
