"""Long work pauses before each pass: whoever waits may see to other things, or end it."""

from typing import Any

import pytest
from tiny_engines import START, tiny

from triform.cooperative import call_at_pauses, pause
from triform.generate.api import complete

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.mark.parametrize("asked", [{}, {"beams": 3}], ids=["greedy", "beams"])
@pytest.mark.parametrize("form", ["gpt2", "t5"])
def test_a_pause_a_step_that_changes_nothing(form: str, asked: dict[str, Any]) -> None:
    """Even where the same model writes something else meanwhile."""
    model, seen = tiny(form), []

    def look_up() -> None:
        with call_at_pauses(lambda: None):
            seen.append(complete(model, [[4, 5]], start=START, max_tokens=3)[0].tokens)

    plain = complete(model, [[1, 2, 3]], start=START, max_tokens=8, **asked)
    with call_at_pauses(look_up):
        paused = complete(model, [[1, 2, 3]], start=START, max_tokens=8, **asked)
    assert paused == plain
    assert len(seen) >= 8
    assert len(set(seen)) == 1


def test_what_is_raised_ends_the_work() -> None:
    passes = []

    def enough() -> None:
        passes.append(1)
        if len(passes) == 3:
            raise KeyError("enough")

    with pytest.raises(KeyError), call_at_pauses(enough):
        complete(tiny("gpt2"), [[1, 2, 3]], start=START, max_tokens=50, beams=2)
    assert len(passes) == 3
    pause()  # outside, nobody looks up
    assert len(passes) == 3
