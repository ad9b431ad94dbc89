"""Models that no released architecture can express: config.json holds the spec, tensors have our paths as names."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from triform.files.format_version import CURRENT_FORMAT, FORMAT_KEY, check_version
from triform.spec import ModelSpec
from triform.weights.config_fields import OBJECT, Config, convert_to_spec, get_field
from triform.weights.family_table import NO_HEAD, HasTensor, HeadRow, T
from triform.weights.name_rules import NameTable, TensorRule


class OwnPaths(NameTable):
    """Every tensor under its own path."""

    def _find(self, path: str) -> tuple[TensorRule, str]:
        return TensorRule(path, (path,)), ""


HEADS = {"Triform": NO_HEAD}


class OwnFamily(NamedTuple):
    """The interface of `Family`, from the spec."""

    model_type: str = "triform"
    heads: dict[str, HeadRow] = HEADS
    prefix: str = ""
    dropped: tuple[str, ...] = ()

    def when(self, config: Config) -> bool:
        return True

    def read_spec(self, architecture: str, config: Config, has: HasTensor) -> ModelSpec:
        check_version(config.get(FORMAT_KEY, 1), what="config.json", otherwise="save the model again with this one")
        return convert_to_spec(get_field(config, "spec", OBJECT))

    def write_config(self, architecture: str, spec: ModelSpec) -> Config:
        named = {"model_type": self.model_type, "architectures": [architecture]}
        return {FORMAT_KEY: CURRENT_FORMAT} | named | {"spec": msgspec.to_builtins(spec)}

    def make_table(self, architecture: str, *, bare: bool) -> NameTable:
        return OwnPaths(())

    def respell_names(self, places: dict[str, T]) -> dict[str, T]:
        return places

    def is_bare(self, names: Iterable[str]) -> bool:
        return False

    def describes(self, architecture: str, config: Config, spec: ModelSpec) -> bool:
        return bool(config.get("spec") == msgspec.to_builtins(spec))


OWN = OwnFamily()
