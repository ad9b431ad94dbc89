"""The reference's models, saved once and read once for all proofs of this folder."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from reference_models import reference

from triform.weights import model_folder


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def saved(name: str) -> Path:
        path = tmp_path_factory.mktemp(name)
        reference(name).save_pretrained(path)
        return path

    return saved


@pytest.fixture(scope="session")
def ours(folders: Any) -> Any:
    return cache(lambda name: model_folder.read(folders(name), dtype=torch.float64))
