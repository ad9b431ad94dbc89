"""Special tokens: which token pads, ends, begins, masks, as the files of a folder say it or by custom.

Owns tokenizer_config.json, special_tokens_map.json and added_tokens.json, in both generations of the format.
"""

from typing import Annotated, TypeAlias

import msgspec
import tokenizers
from msgspec import UNSET, Meta, UnsetType
from tokenizers import AddedToken

from triform.text.build_tokenizer import mark_special
from triform.text.panic_guard import TokenizerError, shield
from triform.text.tokenizer import ROLES
from triform.text.tokenizer_limits import ADDED_BYTES, check_bytes

Id: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]


class Added(msgspec.Struct):
    """A token beside the vocabulary, with its manners."""

    content: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False
    special: bool = False

    def make(self) -> AddedToken:
        return AddedToken(
            self.content,
            lstrip=self.lstrip,
            rstrip=self.rstrip,
            single_word=self.single_word,
            normalized=self.normalized,
            special=self.special,
        )


Named: TypeAlias = str | Added


class Said(msgspec.Struct):
    """What tokenizer_config.json or special_tokens_map.json says; a role that is null is said to be absent."""

    pad_token: Named | UnsetType | None = UNSET
    eos_token: Named | UnsetType | None = UNSET
    bos_token: Named | UnsetType | None = UNSET
    unk_token: Named | UnsetType | None = UNSET
    mask_token: Named | UnsetType | None = UNSET
    cls_token: Named | UnsetType | None = UNSET
    sep_token: Named | UnsetType | None = UNSET
    additional_special_tokens: list[Named] | None = None
    extra_special_tokens: list[Named] | dict[str, Named] | None = None  # the newer name, in two shapes
    added_tokens_decoder: dict[Id, Added] | None = None
    tokenizer_class: str | None = None
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None
    add_prefix_space: bool | None = None
    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None
    extra_ids: Annotated[int, Meta(ge=0, le=1000)] | None = None
    separate_vocabs: bool | None = None


# A folder that names no role follows the first of these families whose mark is in its vocabulary.
CUSTOMS: dict[str, dict[str, str]] = {
    "[CLS]": {"pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]", "cls": "[CLS]", "sep": "[SEP]"},
    "<mask>": {
        "pad": "<pad>", "unk": "<unk>", "mask": "<mask>", "cls": "<s>", "sep": "</s>", "bos": "<s>", "eos": "</s>",
    },
    "</s>": {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"},
    "<|endoftext|>": {"unk": "<|endoftext|>", "bos": "<|endoftext|>", "eos": "<|endoftext|>"},
}  # fmt: skip


def add_tokens(core: tokenizers.Tokenizer, *, said: Said, older: dict[str, Id]) -> None:
    """Tokens beside the vocabulary; each must get the id that the weights were trained with."""
    tokens = {id: Added(content, normalized=True) for content, id in older.items()}
    tokens |= said.added_tokens_decoder or {}
    check_bytes((token.content for token in tokens.values()), limit=ADDED_BYTES, what="the added tokens")
    known = {token.content for token in core.get_added_tokens_decoder().values()}
    missing = [tokens[id].make() for id in sorted(tokens) if tokens[id].content not in known]
    with shield("adding tokens"):
        core.add_tokens(missing)
    for id, token in tokens.items():
        got = core.token_to_id(token.content)
        if got != id:
            raise TokenizerError(
                f"added token {token.content!r} should have id {id}, but the vocabulary gives it {got}"
            )


def give_roles(core: tokenizers.Tokenizer, *, said: Said, map: Said) -> dict[str, str]:
    """Role: token; all of them made special in the tokenizer. The config is asked first, then the map, then custom."""
    named: dict[str, Named] = {}
    for role in ROLES:
        token = getattr(said, f"{role}_token")
        token = getattr(map, f"{role}_token") if token is UNSET else token
        if token:
            named[role] = token
    if not named.keys() - {"pad"}:
        family = next((family for mark, family in CUSTOMS.items() if core.token_to_id(mark) is not None), {})
        named = {**{role: token for role, token in family.items() if core.token_to_id(token) is not None}, **named}
    listed = said.extra_special_tokens or said.additional_special_tokens or map.additional_special_tokens or []
    extra = listed.values() if isinstance(listed, dict) else listed
    tokens = [Added(token) if isinstance(token, str) else token for token in (*named.values(), *extra)]
    check_bytes((token.content for token in tokens), limit=ADDED_BYTES, what="the special tokens")
    mark_special(core, tokens=[token.make() for token in tokens])
    return {role: token if isinstance(token, str) else token.content for role, token in named.items()}
