"""Drafts without a model: what followed the last tokens when they stood in the text before.

A draft costs nothing to make and is never trusted; whoever asks verifies it. Knows token ids only.
"""

from collections.abc import Sequence

WIDTHS = (3, 2)  # of the n-grams looked for, the longer first
PAYS = 0.5  # a pass over a draft costs about two plain ones at most; this share of right guesses doubles the tokens
MEMORY = 0.9


class Lookup:
    """The text so far, and how often its past foretold the next token."""

    def __init__(self, text: Sequence[int]) -> None:
        self.ids: list[int] = []
        self.after: dict[tuple[int, ...], int] = {}  # n-gram: where the token stands that came after it last
        self.right = PAYS  # a running share of right guesses, counted whether drafts are used or not
        self.guess: int | None = None
        for id in text:
            self._append(id)
        self.guess = self._next()

    def add(self, id: int) -> None:
        if self.guess is not None:
            self.right = MEMORY * self.right + (1 - MEMORY) * (id == self.guess)
        self._append(id)
        self.guess = self._next()

    def _append(self, id: int) -> None:
        for width in WIDTHS:
            if len(self.ids) >= width:
                self.after[tuple(self.ids[-width:])] = len(self.ids)
        self.ids.append(id)

    def _place(self) -> int | None:
        for width in WIDTHS:
            place = self.after.get(tuple(self.ids[-width:]))
            if place is not None:
                return place
        return None

    def _next(self) -> int | None:
        place = self._place()
        return None if place is None else self.ids[place]

    def draft(self, count: int) -> list[int]:
        """The next tokens if the text repeats itself; none where it does not, or where guesses were mostly wrong."""
        place = self._place()
        if place is None or self.right < PAYS:
            return []
        draft: list[int] = []
        for at in range(place, place + count):
            draft.append(self.ids[at] if at < len(self.ids) else draft[at - len(self.ids)])
        return draft
