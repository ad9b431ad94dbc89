"""What a lesson is: claims of a slide, a run that checks them with numbers, and the verdict that follows.

A verdict is never written down: it follows from the claims. A lesson names the verdict it expects; if a run gives
another one, or a fact is not true, the lesson's own check fails.
"""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from triform.charts import Chart

Verdict: TypeAlias = Literal["holds", "holds with a condition", "not settled", "mistake on the slide"]
HOLDS: Verdict = "holds"
CONDITION: Verdict = "holds with a condition"
NOT_SETTLED: Verdict = (
    "not settled"  # a timing did not come out as expected: a busy machine shows nothing about a slide
)
MISTAKE: Verdict = "mistake on the slide"
SIGNS: dict[Verdict, str] = {HOLDS: "✓", CONDITION: "◐", NOT_SETTLED: "?", MISTAKE: "✗"}

Kind: TypeAlias = Literal["computed", "trained", "measured"]


class CheckedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence checked by a run. With `only_if` it needs a condition: `holds` is its truth with it, `anyway` without
    it. A `mistake` must not hold. A `timed` claim depends on a clock: if it does not hold, the machine may have been
    busy, and the slide is not called wrong."""

    says: str
    found: str
    holds: bool
    only_if: str = ""
    anyway: bool = False
    mistake: bool = False
    timed: bool = False

    @property
    def verdict(self) -> Verdict:
        if not self.holds:
            return NOT_SETTLED if self.timed else MISTAKE
        return CONDITION if self.only_if and not self.anyway else HOLDS

    @property
    def expected(self) -> Verdict:
        if self.mistake:
            return MISTAKE
        return CONDITION if self.only_if else HOLDS


class LessonTable(msgspec.Struct, frozen=True, kw_only=True):
    """Cells as text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a run gave. `claims` are the slide's sentences, `facts` ours, which must be true."""

    claims: tuple[CheckedClaim, ...]
    facts: tuple[CheckedClaim, ...] = ()
    tables: tuple[LessonTable, ...] = ()
    plots: tuple[Chart, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of the claims."""
        found = {claim.verdict for claim in self.claims}
        return next((worst for worst in (MISTAKE, NOT_SETTLED, CONDITION) if worst in found), HOLDS)


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """One thing the lectures say. `items` are its numbers in the list of all that they say, `mistakes` those it
    shows."""

    items: tuple[str, ...]
    title: str
    where: str  # the lecture's file
    slide: str  # what it says, in our words
    shows: str  # what the run shows
    expects: Verdict
    run: Callable[[], Evidence]
    mistakes: tuple[str, ...] = ()
    kind: Kind = "computed"

    @property
    def id(self) -> str:
        return self.items[0]


class Chapter(msgspec.Struct, frozen=True, kw_only=True):
    """Lessons in the order they are read."""

    name: str
    title: str
    opening: str
    lessons: tuple[Lesson, ...]


class LessonRun(NamedTuple):
    """A lesson and what its run gave."""

    lesson: Lesson
    evidence: Evidence
    seconds: float = 0.0

    @property
    def passes(self) -> bool:
        """The lesson's own check: the expected verdict of all and of each claim, and every fact."""
        return not self.trouble

    @property
    def trouble(self) -> str:
        """Why it does not pass; empty if it does."""
        claims = [each for each in self.evidence.claims if each.verdict != each.expected]
        wrong = [f"{each.says!r} came out as {each.verdict!r}" for each in claims]
        wrong += [f"not true: {fact.says}" for fact in self.evidence.facts if not fact.holds]
        if self.evidence.verdict != self.lesson.expects:
            wrong.insert(0, f"the run gave {self.evidence.verdict!r}, expected {self.lesson.expects!r}")
        if any(each.timed and not each.holds for each in (*self.evidence.claims, *self.evidence.facts)):
            wrong.append("it depends on a clock: run it again when the machine is idle")
        return "; ".join(wrong)

    def to_values(self) -> dict[str, Any]:
        """As JSON values: everything but the function."""
        values = {name: getattr(self.lesson, name) for name in self.lesson.__struct_fields__ if name != "run"}
        verdicts = {"verdict": self.evidence.verdict, "passes": self.passes, "trouble": self.trouble}
        found = msgspec.to_builtins(self.evidence)
        return {"id": self.lesson.id} | values | verdicts | {"seconds": round(self.seconds, 3)} | found


def lesson(
    *items: str,
    title: str,
    where: str,
    slide: str,
    expects: Verdict = HOLDS,
    mistakes: Sequence[str] = (),
    kind: Kind = "computed",
) -> Callable[[Callable[[], Evidence]], Lesson]:
    """Turns a function into a lesson; its docstring says what the run shows."""

    def made(run: Callable[[], Evidence]) -> Lesson:
        return Lesson(
            items=items,
            title=title,
            where=where,
            slide=slide,
            shows=" ".join((run.__doc__ or "").split()),
            expects=expects,
            run=run,
            mistakes=tuple(mistakes),
            kind=kind,
        )

    return made


def run_lesson(lesson: Lesson) -> LessonRun:
    start = perf_counter()
    evidence = lesson.run()
    return LessonRun(lesson, evidence, perf_counter() - start)


# --- checking with numbers ------------------------------------------------------------------------------------------


def claim(says: str, holds: bool, found: str = "", *, only_if: str = "", anyway: bool = False) -> CheckedClaim:
    return CheckedClaim(says=says, found=found, holds=bool(holds), only_if=only_if, anyway=bool(anyway))


def timed_claim(says: str, holds: bool, found: str) -> CheckedClaim:
    """A sentence that depends on a clock."""
    return CheckedClaim(says=says, found=found, holds=bool(holds), timed=True)


def wrong_claim(says: str, holds: bool, found: str = "") -> CheckedClaim:
    """A sentence in which the slide is wrong: the lesson fails if it holds."""
    return CheckedClaim(says=says, found=found, holds=bool(holds), mistake=True)


def rounds_to(value: float, text: str) -> bool:
    """Rounded to as many digits as the slide prints, it is what the slide prints."""
    digits = len(text.partition(".")[2])
    return f"{value:.{digits}f}".replace("-0.00", "0.00") == text.replace("-0.00", "0.00")


def all_round_to(values: Sequence[float], texts: Sequence[str]) -> bool:
    return all(rounds_to(value, text) for value, text in zip(values, texts, strict=True))


def near(one: float, other: float, within: float = 1e-9) -> bool:
    return abs(one - other) <= within


def numbers(values: Sequence[float], digits: int = 2) -> str:
    return " ".join(f"{value:.{digits}f}" for value in values)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> LessonTable:
    return LessonTable(title=title, columns=tuple(columns), rows=tuple(tuple(map(str, row)) for row in rows))
