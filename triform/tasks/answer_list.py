"""Answers to several questions: a list, which becomes plain values or a frame."""

from typing import Any, TypeVar

import msgspec

from triform.data.frames import make_frame
from triform.tasks.task import Reply

Answer = TypeVar("Answer", bound=msgspec.Struct)


class AnswerList(list[Answer]):
    """One answer per question, in their order."""

    def to_dict(self) -> list[dict[str, Any]]:
        """Each answer as plain values, as JSON has them."""
        return [msgspec.to_builtins(answer) for answer in self]

    def to_pandas(self) -> Any:
        """A DataFrame with one row per answer, and the columns that `triform run --out answers.csv` writes."""
        rows = (one.columns() if isinstance(one, Reply) else msgspec.structs.asdict(one) for one in self)
        return make_frame(list(rows))
