"""Prompt lookup decoding: drafts what followed the last tokens when they occurred before; the engine verifies it."""

from collections.abc import Sequence

NGRAM_WIDTHS = (3, 2)  # of the n-grams looked up, the longer first
MIN_ACCURACY = 0.5  # a pass over a draft costs at most about two plain ones; from this accuracy on it pays
ACCURACY_DECAY = 0.9  # of the running mean


class PromptLookup:
    """The tokens so far, and how often a lookup predicted the next token."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids: list[int] = []
        self.after: dict[tuple[int, ...], int] = {}  # n-gram: index of the token that followed it last
        self.accuracy = MIN_ACCURACY  # running share of right predictions, counted whether drafts are used or not
        self.guess: int | None = None
        for id in ids:
            self._append(id)
        self.guess = self._predict()

    def add(self, id: int) -> None:
        if self.guess is not None:
            self.accuracy = ACCURACY_DECAY * self.accuracy + (1 - ACCURACY_DECAY) * (id == self.guess)
        self._append(id)
        self.guess = self._predict()

    def _append(self, id: int) -> None:
        for width in NGRAM_WIDTHS:
            if len(self.ids) >= width:
                self.after[tuple(self.ids[-width:])] = len(self.ids)
        self.ids.append(id)

    def _find_match(self) -> int | None:
        matches = (self.after.get(tuple(self.ids[-width:])) for width in NGRAM_WIDTHS)
        return next((match for match in matches if match is not None), None)

    def _predict(self) -> int | None:
        match = self._find_match()
        return None if match is None else self.ids[match]

    def draft(self, count: int) -> list[int]:
        """The next tokens if the text repeats itself; none without a match, or if predictions were mostly wrong."""
        match = self._find_match()
        if match is None or self.accuracy < MIN_ACCURACY:
            return []
        draft: list[int] = []
        for at in range(match, match + count):
            draft.append(self.ids[at] if at < len(self.ids) else draft[at - len(self.ids)])
        return draft
