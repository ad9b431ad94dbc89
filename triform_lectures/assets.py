"""Released models and data sets that lessons use if they are on this machine."""

import os
from functools import lru_cache
from pathlib import Path

from triform.errors import TriformError
from triform.model import Model
from triform.weights import model_folder, model_store


class DataMissing(TriformError):
    """A data set is not on this machine."""


@lru_cache(maxsize=4)
def find_model(name: str) -> Model | None:
    """The model of this name, or None."""
    try:
        return model_folder.read(model_store.find_model(name))
    except TriformError:
        return None


def find_data(name: str, *, instead: str) -> Path:
    """The folder of a data set below `TRIFORM_SHARED`, or below a folder `shared` beside the checkout."""
    shared = Path(os.environ.get("TRIFORM_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    place = shared / "data" / name
    if not place.is_dir():
        raise DataMissing(f"{place} is missing; set TRIFORM_SHARED to a folder that has data/{name}, or {instead}")
    return place
