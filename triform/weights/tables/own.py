"""Models that no released architecture can express: config.json holds the spec, tensors have our paths as names."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from triform.files.format_version import FORMAT, KEY, check_version
from triform.spec import ModelSpec
from triform.weights.config_fields import TREE, Config, get, to_spec
from triform.weights.family_table import NO_HEAD, Has, HeadRow, T
from triform.weights.name_rules import Row, Table


class OwnPaths(Table):
    """Every tensor under its own path."""

    def _find(self, path: str) -> tuple[Row, str]:
        return Row(path, (path,)), ""


HEADS = {"Triform": NO_HEAD}


class OwnFamily(NamedTuple):
    """The interface of `Family`, from the spec."""

    model_type: str = "triform"
    heads: dict[str, HeadRow] = HEADS
    prefix: str = ""
    dropped: tuple[str, ...] = ()

    def when(self, config: Config) -> bool:
        return True

    def spec(self, architecture: str, config: Config, has: Has) -> ModelSpec:
        check_version(config.get(KEY, 1), what="config.json", otherwise="save the model again with this one")
        return to_spec(get(config, "spec", TREE))

    def config(self, architecture: str, spec: ModelSpec) -> Config:
        named = {"model_type": self.model_type, "architectures": [architecture]}
        return {KEY: FORMAT} | named | {"spec": msgspec.to_builtins(spec)}

    def table(self, architecture: str, *, bare: bool) -> Table:
        return OwnPaths(())

    def renamed(self, places: dict[str, T]) -> dict[str, T]:
        return places

    def is_bare(self, names: Iterable[str]) -> bool:
        return False

    def describes(self, architecture: str, config: Config, spec: ModelSpec) -> bool:
        return bool(config.get("spec") == msgspec.to_builtins(spec))


OWN = OwnFamily()
