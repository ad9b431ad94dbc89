"""Response templates: how the text that a chat model generated is divided into reasoning, content and tool calls.

A model folder may say it in tokenizer_config.json (`response_template`, as transformers 5 does). For other models the
form follows from the chat template: `<think>` for reasoning, `<tool_call>` with JSON for calls. Refuses to know tokens.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from triform.errors import TriformError

PART_NAMES = ("reasoning", "content", "tool_calls")
OTHER_PART_NAMES = {"reasoning_content": "reasoning", "thinking": "reasoning"}
FIELD_KEYS = {
    "open", "open_pattern", "close", "close_pattern", "content", "content_args", "repeats", "join", "optional",
    "transform", "transform_each",
}  # fmt: skip
MAX_PATTERN_CHARACTERS = 512
HOLD_CHARACTERS = 64  # the end of a text in which a pattern may still begin to match
PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")
REPEATS = "*+{?"

PartName: TypeAlias = Literal["reasoning", "content", "tool_calls"]


class ResponseTemplateError(TriformError):
    """A response template that cannot be used."""


class Found(NamedTuple):
    """Where a delimiter stands, and the named groups of its pattern."""

    start: int
    end: int
    groups: Mapping[str, str]


class Delimiter(NamedTuple):
    """Where a part begins or ends: one of several literal texts, or a pattern."""

    literals: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None

    def find(self, text: str, *, is_final: bool) -> Found | None:
        """The first match; of a pattern that reaches the end of an unfinished text, nothing yet: it might grow."""
        if self.pattern is not None:
            match = self.pattern.search(text)
            if match is None or (match.end() == len(text) and not is_final):
                return None
            return Found(match.start(), match.end(), {key: value or "" for key, value in match.groupdict().items()})
        places = [(at, -len(literal)) for literal in self.literals if (at := text.find(literal)) >= 0]
        if not places:
            return None
        start, length = min(places)
        return Found(start, start - length, {})

    def count_pending(self, text: str) -> int:
        """How many characters at the end of the text might be the beginning of this delimiter."""
        if self.pattern is not None:
            match = self.pattern.search(text)
            return min(len(text), HOLD_CHARACTERS) if match is None else len(text) - match.start()
        longest = 0
        for literal in self.literals:
            for size in range(min(len(text), len(literal) - 1), longest, -1):
                if text.endswith(literal[:size]):
                    longest = size
                    break
        return longest


class ResponsePart(NamedTuple):
    """One part of an answer; the part without `opens` is what stands outside of all others."""

    name: PartName
    opens: Delimiter | None = None
    closes: Delimiter | None = None
    content: str = "text"
    content_args: Mapping[str, Any] = {}
    transform: Any = None
    transform_each: bool = False

    def read(self, text: str, groups: Mapping[str, str]) -> Any:
        """The part's value; a ValueError where the text is not what it should be."""
        value = parse_content(text, self.content, self.content_args)
        if self.transform is None:
            return value
        if not self.transform_each:
            return fill_in(self.transform, {**groups, "content": value})
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise ValueError("not a list of objects")
        return [fill_in(self.transform, {**groups, **item}) for item in value]


class ResponseTemplate(NamedTuple):
    """`bare`: an answer that is one JSON object with a name is a call (Llama 3)."""

    parts: tuple[ResponsePart, ...]
    start: Delimiter | None = None  # behind it, in the prompt, the answer begins
    bare: bool = False
    source: Any = None  # as it stands in tokenizer_config.json

    def cut_prompt(self, prompt: str) -> str:
        """What the chat template has written of the answer already."""
        text, start = prompt, self.start
        if start is None:
            return ""
        while (found := start.find(text, is_final=True)) is not None and found.end > 0:
            text = text[found.end :]
        return text if text is not prompt else ""

    @property
    def spelled(self) -> str:
        """All delimiters, as text: a special token that stands in it must stay visible in what is parsed."""
        each = [delimiter for part in self.parts for delimiter in (part.opens, part.closes) if delimiter is not None]
        patterns = [re.sub(r"\\(.)", r"\1", one.pattern.pattern) for one in each if one.pattern is not None]
        return " ".join([literal for one in each for literal in one.literals] + patterns)

    def without_calls(self) -> "ResponseTemplate":
        """For a request without tools."""
        parts = tuple(part for part in self.parts if part.name != "tool_calls")
        return self._replace(parts=parts, bare=False)


# --- forms that many models share -----------------------------------------------------------------------------------

THINKING = ResponsePart("reasoning", Delimiter(("<think>",)), Delimiter(("</think>",)))
CONTENT = ResponsePart("content")
JSON_CALL = ResponsePart("tool_calls", Delimiter(("<tool_call>",)), Delimiter(("</tool_call>",)), "json")
XML_CALL = ResponsePart(
    "tool_calls",
    Delimiter(pattern=re.compile(r"<tool_call>\s*<function=(?P<name>[^>\n]+)>")),
    Delimiter(pattern=re.compile(r"</function>\s*</tool_call>")),
    "xml-inline",
    {"tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</parameter>"},
    {"name": "{name}", "arguments": "{content}"},
)
LIST_OF_CALLS = ResponsePart("tool_calls", Delimiter(("[TOOL_CALLS]",)), None, "json")


def make_template(chat_template: str, *, tools: bool) -> ResponseTemplate | None:
    """The form that a chat template shows; None for a model that neither thinks nor has tools in this request."""
    parts, bare = [CONTENT], False
    if "<think>" in chat_template:
        parts.append(THINKING)
    if tools:
        if "[TOOL_CALLS]" in chat_template:
            parts.append(LIST_OF_CALLS)
        elif "<tool_call>" in chat_template and "<function=" in chat_template:
            parts.append(XML_CALL)
        else:
            parts.append(JSON_CALL)
            bare = "<tool_call>" not in chat_template and "tools" in chat_template
    return ResponseTemplate(tuple(parts), bare=bare) if len(parts) > 1 else None


def opens_reasoning(prompt: str) -> bool:
    """Whether the chat template has opened the model's reasoning at the end of the prompt."""
    return prompt.rstrip().endswith("<think>")


# --- from tokenizer_config.json -------------------------------------------------------------------------------------


def read_response_template(source: Any, *, what: object) -> ResponseTemplate:
    """A folder's own template, checked before anything is generated."""
    try:
        return _read_template(source)
    except (ValueError, TypeError, KeyError, AttributeError, re.error) as error:
        raise ResponseTemplateError(f"{what}: the response template cannot be used: {error}") from None


def _read_template(source: Any) -> ResponseTemplate:
    if source.get("version", 1) != 1:
        raise ValueError(f"version {source['version']!r} is not known; 1 is")
    fields = source["fields"]
    if not fields:
        raise ValueError("it has no fields")
    parts = tuple(_read_part(name, field) for name, field in fields.items() if _part_name(name) in PART_NAMES)
    if sum(part.opens is None for part in parts) > 1:
        raise ValueError("only one field may have no 'open'")
    start = _read_delimiter(source, "start_anchor", "start_anchor_pattern")
    if not any(part.name == "content" for part in parts):
        parts = (*parts, CONTENT)
    return ResponseTemplate(parts, start, source=source)


def _part_name(name: str) -> str:
    return OTHER_PART_NAMES.get(name, name)


def _read_part(name: str, field: Mapping[str, Any]) -> ResponsePart:
    if unknown := set(field) - FIELD_KEYS:
        raise ValueError(f"the field {name!r} has unknown keys: {', '.join(sorted(unknown))}")
    content, arguments = field.get("content", "text"), field.get("content_args", {})
    if content not in CONTENT_PARSERS:
        raise ValueError(f"the field {name!r} has unknown content {content!r}; use {', '.join(CONTENT_PARSERS)}")
    if (pattern := arguments.get("tag_pattern")) is not None:
        _compile(pattern)
    part: Any = _part_name(name)
    return ResponsePart(
        part,
        _read_delimiter(field, "open", "open_pattern"),
        _read_delimiter(field, "close", "close_pattern"),
        content,
        arguments,
        field.get("transform"),
        bool(field.get("transform_each", False)),
    )


def _read_delimiter(field: Mapping[str, Any], literal: str, pattern: str) -> Delimiter | None:
    if literal in field and pattern in field:
        raise ValueError(f"only one of {literal!r} and {pattern!r} may be given")
    if pattern in field:
        return Delimiter(pattern=_compile(field[pattern]))
    if literal not in field:
        return None
    texts = [field[literal]] if isinstance(field[literal], str) else list(field[literal])
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise ValueError(f"{literal!r} must be a text or texts, not empty")
    return Delimiter(tuple(texts))


def _compile(pattern: str) -> re.Pattern[str]:
    """A pattern that cannot backtrack without end: no repetition inside a repetition."""
    if len(pattern) > MAX_PATTERN_CHARACTERS or repeats_repetitions(pattern):
        raise ValueError(f"the pattern {pattern[:80]!r} is too long, or repeats a repetition")
    return re.compile(pattern, re.DOTALL)


def repeats_repetitions(pattern: str) -> bool:
    """Whether a group that holds a repetition is repeated itself, as in `(a+)+`."""
    groups, at, ended = [False], 0, False  # of every open group: whether it holds a repetition
    while at < len(pattern):
        sign, before, ended = pattern[at], ended, False
        if sign == "\\":
            at += 1
        elif sign == "[":
            at = _skip_class(pattern, at)
        elif sign == "(":
            groups.append(False)
            at += pattern.startswith("(?", at)  # this ? repeats nothing
        elif sign == ")" and len(groups) > 1:
            ended = groups.pop()
            groups[-1] |= ended
        elif sign in REPEATS:
            if before and sign != "?":
                return True
            groups[-1] |= sign != "?"
        at += 1
    return False


def _skip_class(pattern: str, at: int) -> int:
    """The place of the bracket that ends a character class."""
    at += 2 if pattern.startswith("[^", at) else 1
    at += pattern.startswith("]", at)
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at


# --- content --------------------------------------------------------------------------------------------------------


def parse_text(text: str, arguments: Mapping[str, Any]) -> str:
    return text.strip() if arguments.get("strip", True) else text


def parse_json(text: str, arguments: Mapping[str, Any]) -> Any:
    """JSON, with the liberties that a template allows: own string signs, keys without quotes."""
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[1])
        return f"\x01{len(kept) - 1}\x02"

    for opening, closing in arguments.get("string_delims", ()):
        text = re.sub(f"{re.escape(opening)}(.*?){re.escape(closing)}", keep, text, flags=re.DOTALL)
    if arguments.get("unquoted_keys"):
        text = re.sub(r"(?<=[{,])(\w+):", r'"\1":', text)
    for number, string in enumerate(kept):
        text = text.replace(f"\x01{number}\x02", json.dumps(string))
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if arguments.get("allow_non_json"):
            return text.strip()
        raise ValueError("not JSON") from None


def parse_tags(text: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`key` and `value` of every match of a pattern."""
    found: dict[str, Any] = {}
    for match in re.finditer(arguments["tag_pattern"], text, flags=re.DOTALL):
        key, value = match["key"], parse_value(match["value"], arguments)
        if key in found and arguments.get("merge_duplicates"):
            several = found[key] if isinstance(found[key], list) else [found[key]]
            found[key] = [*several, value]
        else:
            found[key] = value
    return found


def parse_lines(text: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`key: value`, line by line."""
    found = {}
    for line in text.split(arguments.get("line_sep", "\n")):
        key, separator, value = line.partition(arguments.get("kv_sep", ":"))
        if separator:
            found[key.strip()] = parse_value(value.strip(), arguments)
    return found


def parse_value(text: str, arguments: Mapping[str, Any]) -> Any:
    parser = arguments.get("value_parser")
    return text if parser is None else parse_content(text, parser.get("name", "text"), parser.get("args", {}))


CONTENT_PARSERS = {"text": parse_text, "json": parse_json, "xml-inline": parse_tags, "kv-lines": parse_lines}


def parse_content(text: str, name: str, arguments: Mapping[str, Any]) -> Any:
    return CONTENT_PARSERS[name](text, arguments)


def fill_in(template: Any, values: Mapping[str, Any]) -> Any:
    """A template whose texts `{name}` and `{name.key}` become values."""
    if isinstance(template, dict):
        return {key: fill_in(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [fill_in(value, values) for value in template]
    if not isinstance(template, str) or not (match := PLACEHOLDER.fullmatch(template)):
        return template
    value: Any = values
    for key in match[1].split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise ValueError(f"{template} is missing")
        value = value[key]
    return value


# --- calls ----------------------------------------------------------------------------------------------------------


class CalledTool(NamedTuple):
    """A tool that the model calls; the arguments are JSON text."""

    name: str
    arguments: str


def find_calls(value: Any) -> Iterator[CalledTool]:
    """The calls in the value of a part: one or several, in any of the usual shapes; a ValueError otherwise."""
    if isinstance(value, list) and value:
        for each in value:
            yield from find_calls(each)
        return
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise ValueError("not a call")
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = json.loads(arguments or "{}")
    if not isinstance(arguments, dict):
        raise ValueError("the arguments are not an object")
    yield CalledTool(value["name"], json.dumps(arguments, ensure_ascii=False))
