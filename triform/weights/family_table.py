"""A family: one table of tensor names, one table of config fields, one row per head.

Reading: config and names → spec. Writing: a spec belongs to an architecture exactly if its config, read back, gives
that spec again.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from triform.errors import TriformError
from triform.files.errors import FileError, list_names
from triform.spec import Classify, Head, ModelSpec, NoHead, Own, Span, Tag, Tied
from triform.weights.config_fields import (
    FLAG,
    Config,
    ConfigField,
    Tree,
    check_fixed,
    convert_to_spec,
    fill_spec,
    get_field,
    read_labels,
    write_fields,
    write_labels,
)
from triform.weights.name_rules import NameTable, Rule, same, twin

T = TypeVar("T")
HasTensor: TypeAlias = Callable[[str], bool]  # is there a tensor of this name in the file?
ChooseHead: TypeAlias = Callable[[Config, HasTensor], Head]

NOTHING: Config = {}

# Of every family: code or quantisation that came with the model.
FIXED: Config = {"auto_map": None, "quantization_config": None, "pruned_heads": {}}


class HeadRow(NamedTuple):
    """The head of one architecture: how it is chosen, and its names."""

    choose: ChooseHead
    names: tuple[Rule, ...] = ()
    bare: bool = False  # written without the family's prefix
    written: bool = True  # False: read only, since it has more tensors than we store


def write_nothing(spec: ModelSpec) -> Config:
    return {}


class Family(NamedTuple):
    """`defaults` are used where a field is missing, before the field's own default; `fixed` is what we cannot vary."""

    model_type: str
    template: ModelSpec
    fields: tuple[ConfigField, ...]
    names: tuple[Rule, ...]
    heads: dict[str, HeadRow]
    derive: Callable[[Tree, Config], None]  # what no single field says
    defaults: Config = NOTHING
    when: Callable[[Config], bool] = lambda config: True  # of two with one model_type, this is the one
    fixed: Config = NOTHING
    prefix: str = ""  # of all names but the head's; files of a bare model have none
    old_names: tuple[tuple[str, str], ...] = ()
    more: Callable[[ModelSpec], Config] = write_nothing
    dropped: tuple[str, ...] = ()  # other spellings of what we write: not carried along

    def read_spec(self, architecture: str, config: Config, has: HasTensor) -> ModelSpec:
        usual = {field.theirs: field.default for field in self.fields if field.default is not None} | self.defaults
        known = {name: value for name, value in (usual | config).items() if value is not None}
        if nulls := ({field.theirs for field in self.fields} & usual.keys()) - known.keys():
            raise FileError(f"config.json: {list_names(sorted(nulls))} must not be null")
        check_fixed(known, FIXED | self.fixed)
        tree: Tree = msgspec.to_builtins(self.template)
        fill_spec(tree, known, self.fields)
        tree["head"] = msgspec.to_builtins(self.heads[architecture].choose(known, has))
        self.derive(tree, known)
        return convert_to_spec(tree)

    def write_config(self, architecture: str, spec: ModelSpec) -> Config:
        config = write_fields(spec, self.fields) | self.more(spec)
        config |= {"model_type": self.model_type, "architectures": [architecture]}
        if isinstance(spec.head, Classify | Tag):
            config |= write_labels(tuple(f"LABEL_{i}" for i in range(spec.head.labels)))
        return config

    def make_table(self, architecture: str, *, bare: bool) -> NameTable:
        rules = (*self.names, *self.heads[architecture].names)
        return NameTable(rules, respell=(lambda name: name.removeprefix(self.prefix)) if bare else str)

    def respell_names(self, places: dict[str, T]) -> dict[str, T]:
        """Names of an older generation in their present spelling."""
        renamed = {self._present(name): place for name, place in places.items()}
        return renamed if len(renamed) == len(places) else places

    def _present(self, name: str) -> str:
        for old, new in self.old_names:
            if name.endswith(old):
                return name.removesuffix(old) + new
        return name

    def is_bare(self, names: Iterable[str]) -> bool:
        return bool(self.prefix) and not any(name.startswith(self.prefix) for name in names)

    def describes(self, architecture: str, config: Config, spec: ModelSpec) -> bool:
        """Read with the tensors this model has, the config gives this model."""
        try:
            names = {part.name for part in self.make_table(architecture, bare=False).parts(spec)}
            return self.read_spec(architecture, config, names.__contains__) == spec
        except TriformError:
            return False


# --- heads that several families have -------------------------------------------------------------------------------


def choose_always(head: Head) -> ChooseHead:
    return lambda config, has: head


def choose_tied_or_own(config: Config, has: HasTensor) -> Head:
    return Tied() if get_field(config, "tie_word_embeddings", FLAG) else Own()


def choose_classify(template: Classify) -> ChooseHead:
    return lambda config, has: msgspec.structs.replace(template, labels=len(read_labels(config)))


def choose_tag(config: Config, has: HasTensor) -> Head:
    return Tag(labels=len(read_labels(config)))


def write_tie_flag(spec: ModelSpec) -> Config:
    """Only where there is a language-model head."""
    return {"tie_word_embeddings": isinstance(spec.head, Tied)} if isinstance(spec.head, Tied | Own) else {}


NO_HEAD = HeadRow(choose_always(NoHead()), bare=True)
TAGGER = HeadRow(choose_tag, (same("readout.out", "classifier"),))
QUESTION_ANSWERING = HeadRow(choose_always(Span()), (same("readout.out", "qa_outputs"),))
LANGUAGE_HEAD = HeadRow(
    choose_tied_or_own, (same("readout.own", "lm_head.weight"), twin("token.weight", "lm_head.weight"))
)
LAST_TOKEN = HeadRow(choose_classify(Classify(labels=1, pick="last", bias=False)), (same("readout.out", "score"),))
