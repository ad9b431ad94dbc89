"""Which architecture a config names, and which one a spec belongs to."""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from triform.errors import UnsupportedName
from triform.files.errors import MAX_VALUE_CHARS, FileError, show_value
from triform.spec import ModelSpec
from triform.weights.config_fields import TEXT, Config, get_field
from triform.weights.family_table import Family
from triform.weights.not_ours import explain
from triform.weights.tables.albert import ALBERT
from triform.weights.tables.bart import BART
from triform.weights.tables.bert import BERT
from triform.weights.tables.bloom import BLOOM
from triform.weights.tables.distilbert import DISTILBERT
from triform.weights.tables.electra import ELECTRA
from triform.weights.tables.eurobert import EUROBERT
from triform.weights.tables.gemma3 import EMBEDDING_GEMMA, GEMMA3
from triform.weights.tables.gpt2 import GPT2
from triform.weights.tables.gpt_neo import GPT_NEO
from triform.weights.tables.gpt_neox import GPT_NEOX
from triform.weights.tables.granite import GRANITE, GRANITE_4
from triform.weights.tables.gte import GTE
from triform.weights.tables.llama import LLAMA, MISTRAL, QWEN2, QWEN3
from triform.weights.tables.marian import MARIAN
from triform.weights.tables.mbart import M2M_100, MBART, PEGASUS
from triform.weights.tables.modernbert import MODERNBERT
from triform.weights.tables.mpnet import MPNET
from triform.weights.tables.mpt import MPT
from triform.weights.tables.nomic_bert import NOMIC_BERT
from triform.weights.tables.olmo2 import OLMO2
from triform.weights.tables.opt import OPT
from triform.weights.tables.own import OWN, OwnFamily
from triform.weights.tables.phi3 import PHI3
from triform.weights.tables.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from triform.weights.tables.roformer import ROFORMER
from triform.weights.tables.smollm3 import SMOLLM3
from triform.weights.tables.starcoder2 import STARCODER2
from triform.weights.tables.t5 import T5_FAMILIES

AnyFamily: TypeAlias = Family | OwnFamily

# A spec that several could express is written as the first of them.
FAMILIES: tuple[AnyFamily, ...] = (
    BERT, DISTILBERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, ELECTRA, MPNET, ALBERT, GTE, ROFORMER, NOMIC_BERT, EUROBERT,
    MODERNBERT, EMBEDDING_GEMMA, GPT2, GPT_NEO, OPT, LLAMA, MISTRAL, QWEN2, QWEN3, SMOLLM3, GEMMA3, PHI3, STARCODER2,
    GPT_NEOX, BLOOM, MPT, OLMO2, GRANITE, GRANITE_4, *T5_FAMILIES,
    BART, MARIAN, MBART, PEGASUS, M2M_100, OWN,
)  # fmt: skip


class Architecture(NamedTuple):
    """A family and one of its heads: `bert` with `BertForMaskedLM`."""

    family: AnyFamily
    name: str


def find_architecture(config: Config) -> Architecture:
    """The architecture a config names."""
    model_type = get_field(config, "model_type", TEXT)
    families = [family for family in FAMILIES if family.model_type == model_type]
    if not families and (reason := explain(model_type)) is not None:
        raise FileError(f"config.json: {reason}")
    if not families:
        raise UnsupportedName("model type", model_type[:MAX_VALUE_CHARS], {family.model_type for family in FAMILIES})
    family = next((family for family in families if family.when(config)), families[0])
    known = [name for each in families for name in each.heads]
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise FileError(f"config.json: architectures is {show_value(names)}; it must name one of {', '.join(known)}")
    if names[0] not in family.heads:
        raise UnsupportedName(f"architecture of {model_type}", names[0][:MAX_VALUE_CHARS], known)
    return Architecture(family, names[0])


class WrittenConfig(NamedTuple):
    """The architecture a spec is written as, and its fields of config.json."""

    architecture: Architecture
    config: Config

    def describes(self, spec: ModelSpec) -> bool:
        family, name = self.architecture
        return family.describes(name, self.config, spec)


def choose_architecture(spec: ModelSpec, origin: Config) -> WrittenConfig:
    """The config it was read with where that still describes it; else the first that, written and read back, does. Our
    own family comes last and describes every spec."""
    return next(candidate for candidate in _list_candidates(spec, origin) if candidate.describes(spec))


def _list_candidates(spec: ModelSpec, origin: Config) -> Iterator[WrittenConfig]:
    for family in sorted(FAMILIES, key=lambda family: family.model_type != origin.get("model_type")):
        carried = origin if family.model_type == origin.get("model_type", family.model_type) else {}
        others = {field: value for field, value in carried.items() if field not in family.dropped}
        for name in sorted(family.heads, key=lambda name: [name] != origin.get("architectures")):
            if family.heads[name].written and [name] == carried.get("architectures"):
                yield WrittenConfig(Architecture(family, name), carried)
            if family.heads[name].written:
                yield WrittenConfig(Architecture(family, name), others | family.write_config(name, spec))
