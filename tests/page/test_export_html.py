"""The page as one file: its modules whole, its policy strict, its texts inert."""

import re
from html.parser import HTMLParser

import msgspec
import pytest
from page_models import FORMS, HOSTILE, LONG, looker, page_of, run

from triform.page import export_html
from triform.page.export_html import bundle_modules, csp_hash, read_static, render_file
from triform.serve.page_routes import HEADERS, STATIC_FILES


class Seen(HTMLParser):
    """Tags with their attributes and what stands in scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.inside.append("")

    def handle_data(self, data: str) -> None:
        if self.inside and self.cdata_elem:
            self.inside[-1] += data


def seen(html: str) -> Seen:
    parser = Seen()
    parser.feed(html)
    return parser


@pytest.mark.parametrize("form", FORMS)
def test_only_our_own_code_may_run(form: str) -> None:
    found = seen(page_of(form))
    style, data, code = found.inside
    (policy,) = [tag["content"] for name, tag in found.tags if tag.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert f"script-src {csp_hash(code)}; style-src {csp_hash(style)};" in policy
    assert "unsafe" not in policy
    assert not [tag for name, tag in found.tags if name == "img" or "src" in tag]
    held = msgspec.json.decode(data)
    assert held["text"] == run().text
    assert HOSTILE not in data
    assert "https://" not in style + code.replace("http://www.w3.org/2000/svg", "")


def test_every_module_is_in_the_bundle_once() -> None:
    code = bundle_modules("main.js")
    names = [name for name in STATIC_FILES if name.endswith(".js")]
    assert sorted(re.findall(r'^modules\["(.+?)"\] = ', code, re.MULTILINE)) == names
    assert not re.search(r"^\s*(import|export)\b", code, re.MULTILINE)


def test_a_module_gives_what_others_take() -> None:
    """A name that is imported but not exported would be undefined in the file and an error when served."""
    for name in (name for name in STATIC_FILES if name.endswith(".js")):
        for taken, path in export_html.IMPORT.findall(read_static(name)):
            given = set(export_html.EXPORT.findall(read_static(export_html.resolve_import(name, path))))
            assert {one.strip() for one in taken.split(",")} <= given, f"{name} takes too much from {path}"


def test_text_never_becomes_markup() -> None:
    code = "".join(read_static(name) for name in STATIC_FILES if name.endswith(".js"))
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser"):
        assert way not in code
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_page_and_file_agree_on_windows() -> None:
    assert f"export const WINDOW = {export_html.WINDOW};" in read_static("state.js")
    for word, texts in export_html.CONTEXTS.items():
        assert f"{word}: [{', '.join(f'{chr(34)}{text}{chr(34)}' for text in texts)}]" in read_static("views/stream.js")


def test_a_file_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_html, "MAX_ANSWER_BYTES", 200_000)
    html = render_file(looker("decoder"), run(LONG))
    assert len(html) < 200_000 + 200_000  # answers, and the page itself
