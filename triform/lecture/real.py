"""Released models, where they stand on this machine's shelf: lessons look into them too, and do without them."""

from functools import lru_cache

from triform.errors import TriformError
from triform.weights import folder, shelf
from triform.weights.folder import Loaded


@lru_cache(maxsize=4)
def standing(name: str) -> Loaded | None:
    """The model of this name, or nothing."""
    try:
        return folder.read(shelf.find(name))
    except TriformError:
        return None
