"""Axis letters of all tensor types.

B batch · T queries · S keys · D width · E width of the embeddings · H heads · G key/value heads · K head width ·
F feed-forward width · V vocabulary · L layers · R rows of keys. Checked at run time in the tests; only types otherwise.
"""

from typing import TypeAlias

from jaxtyping import Bool, Float, Int
from torch import Tensor

BT: TypeAlias = Int[Tensor, "B T"]
BTD: TypeAlias = Float[Tensor, "B T D"]
BTE: TypeAlias = Float[Tensor, "B T E"]
XD: TypeAlias = Float[Tensor, "*X D"]  # any axes before the width
XE: TypeAlias = Float[Tensor, "*X E"]
XV: TypeAlias = Float[Tensor, "*X V"]
VD: TypeAlias = Float[Tensor, "V D"]
VE: TypeAlias = Float[Tensor, "V E"]

BTHK: TypeAlias = Float[Tensor, "B T H K"]
BHTK: TypeAlias = Float[Tensor, "B H T K"]
BGTK: TypeAlias = Float[Tensor, "B G T K"]
BGSK: TypeAlias = Float[Tensor, "B G S K"]
RGSK: TypeAlias = Float[Tensor, "R G S K"]  # one row of keys per row of queries, or one for several neighbours
BHTS: TypeAlias = Float[Tensor, "B H T S"]

# `#` axes may be 1 (broadcast): one table for every row or every head.
Positions: TypeAlias = Int[Tensor, "#B T"]
KeyPositions: TypeAlias = Int[Tensor, "S"]
Allowed: TypeAlias = Bool[Tensor, "#B #H #T S"]
Added: TypeAlias = Float[Tensor, "#B #H #T S"]
Angle: TypeAlias = Float[Tensor, "#B T 1 half"]
