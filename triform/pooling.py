"""How the vectors of a text's tokens become one vector, and which prompt stands before a text.

`weights/sentence_transformers.py` reads and writes it in the files of a sentence-transformers folder.
"""

from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["mean", "cls", "max"]
Role: TypeAlias = Literal["text", "query", "document"]  # what a text is embedded as
ROLES: dict[Role, tuple[str, ...]] = {"text": (), "query": ("query",), "document": ("document", "passage", "corpus")}


class Pooling(NamedTuple):
    kind: Kind
    normalise: bool  # to length 1
    longest: int | None = None  # tokens of a text that are read; the rest is cut off
    prompts: tuple[tuple[str, str], ...] = ()  # name, and what is put before a text
    default_prompt: str | None = None  # the name of the one for texts that are neither queries nor documents

    def prompt(self, role: Role) -> str:
        """What stands before every text of this role, as sentence-transformers' encode, encode_query and
        encode_document put it there."""
        known = dict(self.prompts)
        names = [name for name in (*ROLES[role], self.default_prompt) if name in known]
        return known[names[0]] if names else ""
