"""Stop strings cut at the same character however the text comes in pieces."""

from hypothesis import given
from hypothesis import strategies as st

from triform.generate.stop_strings import StopStrings

letters = st.text("ab", max_size=12)


def in_pieces(text: str, stops: tuple[str, ...], cuts: list[int]) -> tuple[str, bool]:
    cutter, said, at = StopStrings(stops), "", 0
    for cut in [*sorted(min(cut, len(text)) for cut in cuts), len(text)]:
        piece, stopped = cutter.push(text[at:cut])
        said, at = said + piece, cut
        if stopped:
            return said, True
    return said + cutter.finish(), False


def at_once(text: str, stops: tuple[str, ...]) -> tuple[str, bool]:
    """The definition, character by character: the first end of a stop string, and the longest that ends there."""
    for end in range(1, len(text) + 1):
        if starts := [end - len(stop) for stop in stops if text[:end].endswith(stop)]:
            return text[: min(starts)], True
    return text, False


@given(letters, st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.lists(st.integers(0, 12), max_size=6))
def test_pieces_do_not_matter(text: str, stops: list[str], cuts: list[int]) -> None:
    assert in_pieces(text, tuple(stops), cuts) == at_once(text, tuple(stops))


def test_nothing_of_a_stop_string_is_ever_shown() -> None:
    cutter = StopStrings(("END",))
    assert [cutter.push(piece).text for piece in ("abE", "N", "x", "EN")] == ["ab", "", "ENx", ""]
    assert cutter.push("D!") == ("", True)


def test_what_was_held_back_is_text_in_the_end() -> None:
    cutter = StopStrings(("END",))
    assert cutter.push("the EN").text + cutter.finish() == "the EN"
