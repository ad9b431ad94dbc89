"""Special tokens: pad, eos, bos, mask and others, from the files of a folder or by the custom of a family.

Reads tokenizer_config.json, special_tokens_map.json and added_tokens.json, in both versions of the format.
"""

from typing import Annotated, TypeAlias

import msgspec
import tokenizers
from msgspec import UNSET, Meta, UnsetType
from tokenizers import AddedToken

from triform.text.build_tokenizer import mark_special
from triform.text.panic_guard import TokenizerError, guard_library
from triform.text.tokenizer import ROLES
from triform.text.tokenizer_limits import MAX_ADDED_BYTES, check_bytes

Id: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]


class AddedTokenFields(msgspec.Struct):
    """A token beside the vocabulary, as the files describe it."""

    content: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False
    special: bool = False

    def to_library(self) -> AddedToken:
        return AddedToken(**msgspec.structs.asdict(self))


TokenOrName: TypeAlias = str | AddedTokenFields


class TokenizerConfig(msgspec.Struct):
    """tokenizer_config.json or special_tokens_map.json; a role that is null has no token."""

    pad_token: TokenOrName | UnsetType | None = UNSET
    eos_token: TokenOrName | UnsetType | None = UNSET
    bos_token: TokenOrName | UnsetType | None = UNSET
    unk_token: TokenOrName | UnsetType | None = UNSET
    mask_token: TokenOrName | UnsetType | None = UNSET
    cls_token: TokenOrName | UnsetType | None = UNSET
    sep_token: TokenOrName | UnsetType | None = UNSET
    additional_special_tokens: list[TokenOrName] | None = None
    extra_special_tokens: list[TokenOrName] | dict[str, TokenOrName] | None = None  # the newer name, in two shapes
    added_tokens_decoder: dict[Id, AddedTokenFields] | None = None
    tokenizer_class: str | None = None
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None
    add_prefix_space: bool | None = None
    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None
    extra_ids: Annotated[int, Meta(ge=0, le=1000)] | None = None
    separate_vocabs: bool | None = None


# A folder without roles follows the first of these families whose key is in its vocabulary.
USUAL_ROLES: dict[str, dict[str, str]] = {
    "[CLS]": {"pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]", "cls": "[CLS]", "sep": "[SEP]"},
    "<mask>": {
        "pad": "<pad>", "unk": "<unk>", "mask": "<mask>", "cls": "<s>", "sep": "</s>", "bos": "<s>", "eos": "</s>",
    },
    "</s>": {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"},
    "<|endoftext|>": {"unk": "<|endoftext|>", "bos": "<|endoftext|>", "eos": "<|endoftext|>"},
}  # fmt: skip


def add_tokens(core: tokenizers.Tokenizer, *, config: TokenizerConfig, older: dict[str, Id]) -> None:
    """Add the tokens beside the vocabulary; each must get the id that the weights were trained with."""
    tokens = {id: AddedTokenFields(content, normalized=True) for content, id in older.items()}
    tokens |= config.added_tokens_decoder or {}
    check_bytes((token.content for token in tokens.values()), limit=MAX_ADDED_BYTES, what="the added tokens")
    known = {token.content for token in core.get_added_tokens_decoder().values()}
    missing = [tokens[id].to_library() for id in sorted(tokens) if tokens[id].content not in known]
    with guard_library("adding tokens"):
        core.add_tokens(missing)
    for id, token in tokens.items():
        got = core.token_to_id(token.content)
        if got != id:
            raise TokenizerError(
                f"added token {token.content!r} should have id {id}, but the vocabulary gives it {got}"
            )


def assign_roles(core: tokenizers.Tokenizer, *, config: TokenizerConfig, tokens_map: TokenizerConfig) -> dict[str, str]:
    """Role → token, all made special in the tokenizer: from the config, else the map, else by the family's custom."""
    roles: dict[str, TokenOrName] = {}
    for role in ROLES:
        token = getattr(config, f"{role}_token")
        token = getattr(tokens_map, f"{role}_token") if token is UNSET else token
        if token:
            roles[role] = token
    if not roles.keys() - {"pad"}:
        family = next((family for key, family in USUAL_ROLES.items() if core.token_to_id(key) is not None), {})
        roles = {**{role: token for role, token in family.items() if core.token_to_id(token) is not None}, **roles}
    listed = (
        config.extra_special_tokens or config.additional_special_tokens or tokens_map.additional_special_tokens or []
    )
    extra = listed.values() if isinstance(listed, dict) else listed
    tokens = [AddedTokenFields(token) if isinstance(token, str) else token for token in (*roles.values(), *extra)]
    check_bytes((token.content for token in tokens), limit=MAX_ADDED_BYTES, what="the special tokens")
    mark_special(core, tokens=[token.to_library() for token in tokens])
    return {role: token if isinstance(token, str) else token.content for role, token in roles.items()}
