"""The feed-forward network: applied to each position separately, with the same weights."""

from collections.abc import Callable

from torch import Tensor, nn

from triform.core.blocks import PassContext
from triform.shapes import BTD


class FeedForward(nn.Module):
    """down(act(up x))"""

    def __init__(self, up: nn.Linear, down: nn.Linear, *, act: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.up = up
        self.act = act
        self.down = down

    def forward(self, x: BTD, flow: PassContext) -> BTD:
        return self.down(self.act(self.up(x)))


class GatedFeedForward(FeedForward):
    """down(act(gate x) · up x); gate and up are the two halves of one matrix"""

    def forward(self, x: BTD, flow: PassContext) -> BTD:
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(self.act(gate) * up)
