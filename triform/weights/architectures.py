"""Which architecture a config names, and which one a spec belongs to."""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from triform.errors import UnsupportedName
from triform.files.errors import MAX_VALUE_CHARS, WeightsError, shown
from triform.spec import ModelSpec
from triform.weights.config_fields import TEXT, Config, get
from triform.weights.family_table import Family
from triform.weights.tables.bart import BART
from triform.weights.tables.bert import BERT
from triform.weights.tables.distilbert import DISTILBERT
from triform.weights.tables.gpt2 import GPT2
from triform.weights.tables.llama import LLAMA, MISTRAL, QWEN2, QWEN3
from triform.weights.tables.marian import MARIAN
from triform.weights.tables.own import OWN, OwnFamily
from triform.weights.tables.roberta import ROBERTA
from triform.weights.tables.t5 import T5, T5_GATED

AnyFamily: TypeAlias = Family | OwnFamily

# A spec that several could express is written as the first of them.
FAMILIES: tuple[AnyFamily, ...] = (
    BERT, DISTILBERT, ROBERTA, GPT2, LLAMA, MISTRAL, QWEN2, QWEN3, T5, T5_GATED, BART, MARIAN, OWN,
)  # fmt: skip


class Architecture(NamedTuple):
    """A family and one of its heads: `bert` with `BertForMaskedLM`."""

    family: AnyFamily
    name: str


def named(config: Config) -> Architecture:
    """The architecture a config names."""
    model_type = get(config, "model_type", TEXT)
    families = [family for family in FAMILIES if family.model_type == model_type]
    if not families:
        raise UnsupportedName("model type", model_type[:MAX_VALUE_CHARS], {family.model_type for family in FAMILIES})
    family = next((family for family in families if family.when(config)), families[0])
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise WeightsError(
            f"config.json: architectures is {shown(names)}; it must name one of {', '.join(family.heads)}"
        )
    if names[0] not in family.heads:
        raise UnsupportedName(f"architecture of {model_type}", names[0][:MAX_VALUE_CHARS], family.heads)
    return Architecture(family, names[0])


class Written(NamedTuple):
    """The architecture a spec is written as, and its fields of config.json."""

    architecture: Architecture
    config: Config

    def describes(self, spec: ModelSpec) -> bool:
        family, name = self.architecture
        return family.describes(name, self.config, spec)


def expressing(spec: ModelSpec, origin: Config) -> Written:
    """The config it was read with where that still describes it; else the first that, written and read back, does. Our
    own family comes last and describes every spec."""
    return next(candidate for candidate in _list_candidates(spec, origin) if candidate.describes(spec))


def _list_candidates(spec: ModelSpec, origin: Config) -> Iterator[Written]:
    for family in sorted(FAMILIES, key=lambda family: family.model_type != origin.get("model_type")):
        carried = origin if family.model_type == origin.get("model_type", family.model_type) else {}
        others = {field: value for field, value in carried.items() if field not in family.dropped}
        for name in sorted(family.heads, key=lambda name: [name] != origin.get("architectures")):
            if family.heads[name].written and [name] == carried.get("architectures"):
                yield Written(Architecture(family, name), carried)
            if family.heads[name].written:
                yield Written(Architecture(family, name), others | family.config(name, spec))
