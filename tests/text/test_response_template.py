"""Response templates of a folder: refused before anything is generated where they cannot be used."""

from typing import Any

import pytest

from triform.text.response_template import ResponseTemplateError, read_response_template, repeats_repetitions

WRONG: list[tuple[Any, str]] = [
    ({"version": 2, "fields": {"content": {}}}, "version 2 is not known"),
    ({"fields": {}}, "no fields"),
    ({"fields": {"content": {}, "thinking": {}}}, "only one field"),
    ({"fields": {"content": {"opens": "x"}}}, "unknown keys: opens"),
    ({"fields": {"content": {"content": "yaml"}}}, "unknown content 'yaml'"),
    ({"fields": {"content": {"close": "x", "close_pattern": "x"}}}, "only one of"),
    ({"fields": {"content": {"close": []}}}, "must be a text"),
    ({"fields": {"content": {"close_pattern": "("}}}, "cannot be used"),
    ({"fields": {"content": {"close_pattern": "(a+)+b"}}}, "repeats a repetition"),
    (["content"], "cannot be used"),
]


@pytest.mark.parametrize(("source", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_is_wrong_is_one_line(source: Any, said: str) -> None:
    with pytest.raises(ResponseTemplateError, match=said) as refused:
        read_response_template(source, what="tokenizer_config.json")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("pattern", ["(a+)+", "(?:a*b)*", "((a+)b)*", "(a{2,}){3}", "([)]+)+"])
def test_repetitions_inside_repetitions(pattern: str) -> None:
    assert repeats_repetitions(pattern)


@pytest.mark.parametrize("pattern", [r"\s*<a>\s*", "(?P<name>[^>]+)>", "(ab)+", "[(a+)]+", r"\(a+\)+", "(a+)?"])
def test_harmless_patterns(pattern: str) -> None:
    assert not repeats_repetitions(pattern)
