"""A family: one table of tensor names, one table of config fields, one row per head.

Reading: config and names → spec. Writing: a spec belongs to an architecture exactly if its config, read back, gives
that spec again.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from triform.errors import TriformError
from triform.files.errors import WeightsError, listed
from triform.spec import Classify, Head, ModelSpec, NoHead, Own, Span, Tag, Tied
from triform.weights.config_fields import (
    FLAG,
    Config,
    Field,
    Tree,
    check_fixed,
    emit,
    fill,
    get,
    label_fields,
    labels_of,
    to_spec,
)
from triform.weights.name_rules import Rule, Table, same, twin

T = TypeVar("T")
Has: TypeAlias = Callable[[str], bool]  # is there a tensor of this name in the file?
Choose: TypeAlias = Callable[[Config, Has], Head]

NOTHING: Config = {}

# Of every family: code or quantisation that came with the model.
FIXED: Config = {"auto_map": None, "quantization_config": None, "pruned_heads": {}}


class HeadRow(NamedTuple):
    """The head of one architecture: how it is chosen, and its names."""

    choose: Choose
    names: tuple[Rule, ...] = ()
    bare: bool = False  # written without the family's prefix
    written: bool = True  # False: read only, since it has more tensors than we store


def nothing_more(spec: ModelSpec) -> Config:
    return {}


class Family(NamedTuple):
    """`defaults` are used where a field is missing, before the field's own default; `fixed` is what we cannot vary."""

    model_type: str
    template: ModelSpec
    fields: tuple[Field, ...]
    names: tuple[Rule, ...]
    heads: dict[str, HeadRow]
    derive: Callable[[Tree, Config], None]  # what no single field says
    defaults: Config = NOTHING
    when: Callable[[Config], bool] = lambda config: True  # of two with one model_type, this is the one
    fixed: Config = NOTHING
    prefix: str = ""  # of all names but the head's; files of a bare model have none
    old_names: tuple[tuple[str, str], ...] = ()
    more: Callable[[ModelSpec], Config] = nothing_more
    dropped: tuple[str, ...] = ()  # other spellings of what we write: not carried along

    def spec(self, architecture: str, config: Config, has: Has) -> ModelSpec:
        usual = {field.theirs: field.default for field in self.fields if field.default is not None} | self.defaults
        known = {name: value for name, value in (usual | config).items() if value is not None}
        if nulls := ({field.theirs for field in self.fields} & usual.keys()) - known.keys():
            raise WeightsError(f"config.json: {listed(sorted(nulls))} must not be null")
        check_fixed(known, FIXED | self.fixed)
        tree: Tree = msgspec.to_builtins(self.template)
        fill(tree, known, self.fields)
        tree["head"] = msgspec.to_builtins(self.heads[architecture].choose(known, has))
        self.derive(tree, known)
        return to_spec(tree)

    def config(self, architecture: str, spec: ModelSpec) -> Config:
        config = emit(spec, self.fields) | self.more(spec)
        config |= {"model_type": self.model_type, "architectures": [architecture]}
        if isinstance(spec.head, Classify | Tag):
            config |= label_fields(tuple(f"LABEL_{i}" for i in range(spec.head.labels)))
        return config

    def table(self, architecture: str, *, bare: bool) -> Table:
        rules = (*self.names, *self.heads[architecture].names)
        return Table(rules, respell=(lambda name: name.removeprefix(self.prefix)) if bare else str)

    def renamed(self, places: dict[str, T]) -> dict[str, T]:
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
            names = {part.name for part in self.table(architecture, bare=False).parts(spec)}
            return self.spec(architecture, config, names.__contains__) == spec
        except TriformError:
            return False


# --- heads that several families have -------------------------------------------------------------------------------


def always(head: Head) -> Choose:
    return lambda config, has: head


def tied_or_own(config: Config, has: Has) -> Head:
    return Tied() if get(config, "tie_word_embeddings", FLAG) else Own()


def classify(template: Classify) -> Choose:
    return lambda config, has: msgspec.structs.replace(template, labels=len(labels_of(config)))


def tag(config: Config, has: Has) -> Head:
    return Tag(labels=len(labels_of(config)))


def tie_flag(spec: ModelSpec) -> Config:
    """Only where there is a language-model head."""
    return {"tie_word_embeddings": isinstance(spec.head, Tied)} if isinstance(spec.head, Tied | Own) else {}


NO_HEAD = HeadRow(always(NoHead()), bare=True)
TAGGER = HeadRow(tag, (same("readout.out", "classifier"),))
QUESTION_ANSWERING = HeadRow(always(Span()), (same("readout.out", "qa_outputs"),))
LANGUAGE_HEAD = HeadRow(tied_or_own, (same("readout.own", "lm_head.weight"), twin("token.weight", "lm_head.weight")))
LAST_TOKEN = HeadRow(classify(Classify(labels=1, pick="last", bias=False)), (same("readout.out", "score"),))
