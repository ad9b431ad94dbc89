"""Released models and data sets, where they stand on this machine: lessons look into them too, and do without them."""

import os
from functools import lru_cache
from pathlib import Path

from triform.errors import TriformError
from triform.model import Model
from triform.weights import model_folder, model_store


class DataAbsent(TriformError):
    """A data set that is not on this machine."""


@lru_cache(maxsize=4)
def standing(name: str) -> Model | None:
    """The model of this name, or nothing."""
    try:
        return model_folder.read(model_store.find(name))
    except TriformError:
        return None


def data(name: str, *, instead: str) -> Path:
    """The folder of a data set below `TRIFORM_SHARED`, or below a folder `shared` beside the checkout."""
    shared = Path(os.environ.get("TRIFORM_SHARED") or Path(__file__).resolve().parents[3] / "shared")
    place = shared / "data" / name
    if not place.is_dir():
        raise DataAbsent(f"{place} is not here; set TRIFORM_SHARED to a folder that has data/{name}, or {instead}")
    return place
