"""Where the text ends: stop strings found across pieces, and nothing shown that might still belong to one."""

from typing import NamedTuple


class Cut(NamedTuple):
    text: str
    stopped: bool


class Stops:
    """Text in pieces, cut before the stop string that is complete first (the longest, where two end together)."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.stops = stops
        self.held = ""

    def push(self, piece: str) -> Cut:
        """What is certain by now: text that may be the beginning of a stop string is held back."""
        if not self.stops:
            return Cut(piece, stopped=False)
        text = self.held + piece
        found = [(at + len(stop), at) for stop in self.stops if (at := text.find(stop)) >= 0]
        if found:
            self.held = ""
            return Cut(text[: min(found)[1]], stopped=True)
        certain = len(text) - max(overlap(text, stop) for stop in self.stops)
        self.held = text[certain:]
        return Cut(text[:certain], stopped=False)

    def finish(self) -> str:
        """What was held back turns out to be text."""
        held, self.held = self.held, ""
        return held


def overlap(text: str, stop: str) -> int:
    """The longest end of `text` that is a beginning of `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
