"""Stop strings across pieces of text: text that may be the beginning of a stop string is held back."""

from typing import NamedTuple


class CutText(NamedTuple):
    """Text before a stop string, and whether one was found."""

    text: str
    stopped: bool


class StopStrings:
    """Cuts text before the stop string that is complete first (the longest, if two end together)."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.stops = stops
        self.held = ""

    def push(self, piece: str) -> CutText:
        """The text that certainly belongs to no stop string."""
        if not self.stops:
            return CutText(piece, stopped=False)
        text = self.held + piece
        matches = [(at + len(stop), at) for stop in self.stops if (at := text.find(stop)) >= 0]
        if matches:
            self.held = ""
            return CutText(text[: min(matches)[1]], stopped=True)
        certain = len(text) - max(count_overlap(text, stop) for stop in self.stops)
        self.held = text[certain:]
        return CutText(text[:certain], stopped=False)

    def finish(self) -> str:
        """The text that was held back."""
        held, self.held = self.held, ""
        return held


def count_overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
