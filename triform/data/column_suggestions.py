"""Suggests which column probably has which field, by its name and values, for error messages.

A suggestion is printed, never used.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from triform.data.values import is_bio

# Likely names, too ambiguous to be used without the user; compared as in `columns.USUAL_NAMES`.
LIKELY_NAMES: dict[str, tuple[str, ...]] = {
    "text": ("text", "subject", "title", "message", "description", "utterance", "tweet", "headline", "abstract",
             "phrase", "sentence", "question", "query", "prompt", "input", "summary", "post", "ticket"),
    "messages": ("messages", "chat", "dialog", "dialogue", "turns"),
    "source": ("source", "original", "from", "sentence", "body", "content", "abstract", "en"),
    "target": ("target", "reference", "translated", "title", "headline", "abstract", "tldr", "de", "fr", "es"),
    "labels": ("label", "labels", "queue", "intent", "type", "tag", "tags", "target", "y", "rating", "stars",
               "department", "group", "kind", "polarity", "emotion", "language", "priority", "status", "genre"),
    "tokens": ("tokens", "token", "words", "word", "sentence"),
    "tags": ("tags", "tag", "ner", "entities", "bio", "label", "labels"),
    "question": ("question", "prompt", "ask", "title"),
    "context": ("context", "text", "document", "article", "body", "content"),
    "answers": ("answers", "answer", "response", "span", "target"),
    "starts": ("starts", "start", "offset", "answerstart", "begin"),
    "first": ("first", "a", "left", "text", "source", "question1", "s1", "anchor"),
    "second": ("second", "b", "right", "target", "question2", "s2", "positive"),
    "score": ("score", "similarity", "rating", "relevance", "gold", "label"),
}  # fmt: skip

LONG_TEXT_CHARACTERS = 60  # surely more than a name
MAX_LABEL_CHARACTERS = 40


def name_option(field: str) -> str:
    """The command-line option that names the column of a field."""
    return f"--{'label' if field == 'labels' else field}-column"


def suggest_options(
    missing: Iterable[str], values: Mapping[str, Sequence[object]], *, taken: Iterable[str] = ()
) -> str:
    """`name them: --text-column subject --label-column queue`, from each column's name and some of its values."""
    fields = tuple(missing)
    likely = suggest_columns(fields, {name: held for name, held in values.items() if name not in set(taken)})
    options = [f"{name_option(field)} {shlex.quote(likely[field]) if field in likely else 'NAME'}" for field in fields]
    return f"name {'it' if len(fields) == 1 else 'them'}: {' '.join(options)}"


def suggest_columns(fields: Sequence[str], values: Mapping[str, Sequence[object]]) -> dict[str, str]:
    """field → its most likely column; no column twice, and none without a reason."""
    pairs = [(_rate_column(field, name, held), field, name) for field in fields for name, held in values.items()]
    chosen: dict[str, str] = {}
    for likelihood, field, name in sorted(pairs, key=lambda pair: -pair[0]):
        if likelihood > 0 and field not in chosen and name not in chosen.values():
            chosen[field] = name
    return chosen


def looks_like_header(cells: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Names are short, distinct, not numbers, and not repeated in their own column."""
    if len(set(cells)) < len(cells) or any(
        not cell.strip() or len(cell) > MAX_LABEL_CHARACTERS or _is_number(cell) for cell in cells
    ):
        return False
    return not any(cell == row[number] for row in rows for number, cell in enumerate(cells))


def _rate_column(field: str, name: str, values: Sequence[object]) -> float:
    """0 if the values cannot be this field; a matching name counts more than matching values."""
    fits = RATE_VALUES.get(field, _rate_text)(values)
    return fits + 2 * _rate_name(field, name) if fits > 0 else 0.0


def _rate_name(field: str, name: str) -> float:
    """1 for the first of the likely names, less for later ones; half if the name only contains one."""
    likely = LIKELY_NAMES[field]
    plain = re.sub(r"[\s_-]", "", name).lower()
    if plain in likely:
        return 1 - likely.index(plain) / (2 * len(likely))
    parts = re.split(r"[\s_.-]+|(?<=[a-z])(?=[A-Z])", name)
    return max((0.5 * _rate_name(field, part) for part in parts if part != name), default=0.0)


# --- content --------------------------------------------------------------------------------------------------------


def _rate_text(values: Sequence[object]) -> float:
    """Texts: the longer the better."""
    texts = [
        value for value in values if isinstance(value, str) and not _is_number(value) and re.search(r"[^\W\d]", value)
    ]
    if not texts or len(texts) < len(values) / 2:
        return 0.0
    return min(1.0, 0.1 + sum(map(len, texts)) / len(texts) / LONG_TEXT_CHARACTERS)


def _rate_question(values: Sequence[object]) -> float:
    questions = sum(isinstance(value, str) and value.rstrip().endswith("?") for value in values)
    return _rate_text(values) + (questions / len(values) if values else 0.0)


def _rate_label(values: Sequence[object]) -> float:
    """Short values, some of them repeated; numbers without repetition are ids."""
    if any(isinstance(value, list) for value in values):
        return 0.5 if all(isinstance(value, list) for value in values) else 0.0
    cells = [str(value) for value in values if isinstance(value, str | int | float) and str(value).strip()]
    if not cells or max(map(len, cells)) > MAX_LABEL_CHARACTERS:
        return 0.0
    if len(cells) == 1:
        return 0.2 if _is_number(cells[0]) else 0.6
    repeated = 1 - len(set(cells)) / len(cells)
    return repeated or (0.0 if all(map(_is_number, cells)) else 0.1)


def _rate_number(values: Sequence[object]) -> float:
    """Numbers; rather fractions than integers, which may be ids."""
    if not values or not all(isinstance(value, str | int | float) and _is_number(str(value)) for value in values):
        return 0.0
    return 1.0 if any(not float(str(value)).is_integer() for value in values) else 0.3


def _fits_all(fits: Callable[[object], bool]) -> Callable[[Sequence[object]], float]:
    return lambda values: float(bool(values) and all(map(fits, values)))


def _is_words(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _is_tags(value: object) -> bool:
    return isinstance(value, list) and all(map(is_bio, value))


def _is_messages(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(turn, dict) and "role" in turn for turn in value)


def _is_answers(value: object) -> bool:
    return isinstance(value, str | list | dict)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


RATE_VALUES: dict[str, Callable[[Sequence[object]], float]] = {
    "labels": _rate_label,
    "question": _rate_question,
    "score": _rate_number,
    "starts": _rate_number,
    "tokens": lambda values: _fits_all(_is_words)(values) - _fits_all(_is_tags)(values) / 2,
    "tags": _fits_all(_is_tags),
    "messages": _fits_all(_is_messages),
    "answers": _fits_all(_is_answers),
}
