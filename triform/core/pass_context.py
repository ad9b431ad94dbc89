"""What walks beside x: made once a pass at the stack's door; no room changes it."""

from typing import NamedTuple

from triform.core.cache import Memory, Uncached, Writing
from triform.core.masks import AnySight
from triform.core.positions import Angles


class Flow(NamedTuple):
    angles: Angles
    sight: AnySight
    memory: Memory
    source_sight: AnySight
    cache: Uncached | Writing
