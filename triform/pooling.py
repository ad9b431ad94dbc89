"""How the vectors of a text's tokens become one embedding, and which prompt is put before a text.

`weights/sentence_transformers.py` reads and writes these settings in a sentence-transformers folder.
"""

from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["mean", "cls", "max"]
Role: TypeAlias = Literal["text", "query", "document"]  # what a text is embedded as
ROLES: dict[Role, tuple[str, ...]] = {"text": (), "query": ("query",), "document": ("document", "passage", "corpus")}


class Pooling(NamedTuple):
    kind: Kind
    normalise: bool  # to length 1
    longest: int | None = None  # max tokens per text; the rest is cut off
    prompts: tuple[tuple[str, str], ...] = ()  # name, prompt
    default_prompt: str | None = None  # for texts that are neither queries nor documents

    def prompt(self, role: Role) -> str:
        """The prompt before every text of this role, as in encode, encode_query and encode_document of
        sentence-transformers."""
        known = dict(self.prompts)
        names = [name for name in (*ROLES[role], self.default_prompt) if name in known]
        return known[names[0]] if names else ""
