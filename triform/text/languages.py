"""The languages of a translation model, from the tokens that its tokenizer has for them.

Two customs. `around`: the source's language stands beside the source text, the target's is the first token of the
target (NLLB, M2M-100, mBART). `before`: the target's language stands before the source text (MADLAD, Marian).
"""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

Custom: TypeAlias = Literal["around", "before"]

# eng_Latn, __en__, en_XX; a vocabulary has many such words, so only special tokens count.
SPECIAL = (re.compile(r"([a-z]{3}_[A-Z][a-z]{3})"), re.compile(r"__([a-z]{2,3})__"), re.compile(r"([a-z]{2}_[A-Z]{2})"))
# <2de>, >>deu<<
WRITTEN = (re.compile(r"<2([A-Za-z_]+)>"), re.compile(r">>([A-Za-z_]+)<<"))


class Languages(NamedTuple):
    """The token of each language code, and where it stands; `required`: without one, the model writes no language."""

    tokens: dict[str, str]
    custom: Custom
    required: bool = True


NO_LANGUAGES = Languages({}, "before", required=False)


def find_languages(*, special: Iterable[str], vocabulary: Iterable[str]) -> Languages:
    """By the first custom with two languages at least; one alone is a word that looks like a code."""
    special, vocabulary = list(special), list(vocabulary)
    for pattern in (*SPECIAL, *WRITTEN):
        known = special if pattern in SPECIAL else vocabulary
        tokens = {match[1]: token for token in known if (match := pattern.fullmatch(token))}
        if len(tokens) > 1:
            # Marian's models for one language have its tokens too, and need none.
            return Languages(tokens, "around" if pattern in SPECIAL else "before", required=pattern != WRITTEN[-1])
    return NO_LANGUAGES
