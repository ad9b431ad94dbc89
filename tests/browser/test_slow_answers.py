"""A server that answers late: what the reader does counts at once, and an old answer never stands for a new question.

Every question of the page is held back until the test lets it go, in whatever order.
"""

from collections.abc import Callable
from typing import Any

from page_reader import Reader, reading

OFF = "button.switch:not(.ff)[aria-pressed=true]"


class Held:
    """Questions to /v1/look that wait for their answer."""

    def __init__(self, reader: Reader) -> None:
        self.page: Any = reader.page
        self.waiting: list[Any] = []
        self.shut = True
        self.page.route("**/v1/look", lambda route: self.waiting.append(route) if self.shut else route.continue_())

    def come(self, count: int) -> None:
        """Until so many questions wait, those that the page has ended included."""
        while len(self.waiting) < count:
            self.page.evaluate("0")  # lets the browser's events in

    def asked(self) -> list[dict[str, Any]]:
        return [route.request.post_data_json["ask"] for route in self.waiting]

    def open(self) -> None:
        """All that wait are answered, the last question first; what is asked from now on is answered at once."""
        self.shut = False
        for route in reversed(self.waiting):
            route.continue_()


def off(asked: dict[str, Any]) -> int:
    return len(asked["run"]["change"]["heads"])


def test_every_press_of_a_head_counts(browser: Any, served: Callable[[str], str]) -> None:
    with reading(browser, served("decoder")) as reader:
        reader.open("interventions")
        before, held = reader.now(), Held(reader)
        switches = reader.page.locator("button.switch:not(.ff)")
        for at in range(8):
            switches.nth(at).click()
            assert reader.page.locator(OFF).count() == at + 1  # before any answer has come
        assert "8 heads off" in reader.text(".result")
        held.come(8)
        assert [off(one) for one in held.asked()] == list(range(1, 9))
        held.open()
        reader.settle("interventions", before)
        assert reader.page.locator(OFF).count() == 8
        assert "before → after, with 8 heads off" in reader.text(".result")
        assert "8 heads off" in reader.text(".writes")


def test_a_press_undone_before_its_answer_is_undone(browser: Any, served: Callable[[str], str]) -> None:
    with reading(browser, served("decoder")) as reader:
        reader.open("interventions")
        untouched, before, held = reader.text(".result"), reader.now(), Held(reader)
        switch = reader.page.locator("button.switch").first
        switch.click()
        switch.click()
        reader.settle("interventions", before)  # what it was before has been answered already
        held.open()
        assert reader.page.locator(OFF).count() == 0
        assert reader.text(".result") == untouched


def test_the_view_of_another_tab_does_not_stand_under_a_new_one(browser: Any, served: Callable[[str], str]) -> None:
    with reading(browser, served("decoder")) as reader:
        reader.open("cost")
        held = Held(reader)
        reader.page.click("#tab-stream")
        held.come(1)
        assert reader.text().strip() == "Residual stream …"
        reader.page.click("#tab-attention")
        held.come(2)
        held.open()
        reader.settle("attention")
        assert reader.page.locator("table.costs, svg.chart").count() == 0


def test_the_last_text_asked_for_is_the_one_shown(browser: Any, served: Callable[[str], str]) -> None:
    with reading(browser, served("decoder")) as reader:
        before, held = reader.now(), Held(reader)
        for count, text in enumerate(("a mat", "the sea lion"), start=1):
            reader.page.fill("textarea[name=text]", text)
            reader.page.press("textarea[name=text]", "Enter")
            held.come(count)
        reader.page.fill("textarea[name=text]", "typed meanwhile")
        held.open()
        reader.settle(before=before)
        assert reader.page.locator("#strip .chip bdi").all_inner_texts() == ["the", "sea", "lion"]
        assert reader.page.input_value("textarea[name=text]") == "typed meanwhile"


def test_a_head_pressed_in_an_old_layer_is_one_of_the_layer_chosen(browser: Any, served: Callable[[str], str]) -> None:
    with reading(browser, served("decoder")) as reader:
        reader.open("attention")
        before, held = reader.now(), Held(reader)
        reader.page.select_option("[data-key=layer]", "1")
        held.come(1)
        reader.page.click("[data-key=head-decoder-self-3]")
        held.come(2)
        held.open()
        reader.settle("attention", before)
        assert "Head 3, layer 1" in reader.text()


def test_texts_that_are_being_written_outlast_an_answer(browser: Any, served: Callable[[str], str]) -> None:
    with reading(browser, served("decoder")) as reader:
        reader.open("stream")
        before, held = reader.now(), Held(reader)
        reader.page.click("[data-key=preset-lion]")
        held.come(1)
        reader.page.click("text=Other texts")
        reader.page.fill("[data-key=word]", "cat")
        held.open()
        reader.settle("stream", before)
        assert reader.page.input_value("[data-key=word]") == "cat"
