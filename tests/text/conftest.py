"""The tiny tokenizers, made once, and the reference implementation, imported once."""

import warnings
from pathlib import Path
from types import ModuleType

import pytest
from tiny_tokenizers import make_folders

from triform.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_folders(tmp_path_factory.mktemp("tokenizers"))


@pytest.fixture(scope="session")
def tiny(folders: dict[str, Path]) -> dict[str, Tokenizer]:
    return {name: Tokenizer.read(folder) for name, folder in folders.items()}


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers")
        transformers.logging.set_verbosity_error()
    return transformers
