"""What a lesson is: a claim of a slide, a run that holds it against numbers, and the verdict that follows.

A verdict is never written down beside the numbers it is about: it follows from the claims. A lesson says which verdict
it expects; where a run gives another one, or a fact does not come out, the lesson's own check fails. Refuses to know
terminals, files and which lessons there are.
"""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from triform_lectures.lesson_charts import Plot

Verdict: TypeAlias = Literal["holds", "holds with a condition", "not settled", "mistake on the slide"]
HOLDS: Verdict = "holds"
CONDITION: Verdict = "holds with a condition"
UNSETTLED: Verdict = "not settled"  # a timing did not come out: a busy machine shows nothing about a slide
MISTAKE: Verdict = "mistake on the slide"
SIGNS: dict[Verdict, str] = {HOLDS: "✓", CONDITION: "◐", UNSETTLED: "?", MISTAKE: "✗"}

Kind: TypeAlias = Literal["computed", "trained", "measured"]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence held against a run. With `only_if` it is a sentence that needs a condition: `holds` is under it,
    `anyway` without it. A `mistake` is one that must not hold. A `timed` one rests on a clock: where it does not come
    out, the machine may have been busy, so the slide is not blamed."""

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
            return UNSETTLED if self.timed else MISTAKE
        return CONDITION if self.only_if and not self.anyway else HOLDS

    @property
    def expected(self) -> Verdict:
        if self.mistake:
            return MISTAKE
        return CONDITION if self.only_if else HOLDS


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Cells as they are to be read."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a run gave. `claims` are the slide's sentences, `facts` ours: what is so, and must come out."""

    claims: tuple[Claim, ...]
    facts: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of the claims."""
        found = {claim.verdict for claim in self.claims}
        return next((worst for worst in (MISTAKE, UNSETTLED, CONDITION) if worst in found), HOLDS)


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


class Done(NamedTuple):
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
        """Why it does not pass; nothing where it does."""
        claims = [each for each in self.evidence.claims if each.verdict != each.expected]
        wrong = [f"{each.says!r} came out as {each.verdict!r}" for each in claims]
        wrong += [f"not so: {fact.says}" for fact in self.evidence.facts if not fact.holds]
        if self.evidence.verdict != self.lesson.expects:
            wrong.insert(0, f"the run says {self.evidence.verdict!r}, expected was {self.lesson.expects!r}")
        if any(each.timed and not each.holds for each in (*self.evidence.claims, *self.evidence.facts)):
            wrong.append("it rests on a clock: run it again when the machine is idle")
        return "; ".join(wrong)

    def plain(self) -> dict[str, Any]:
        """For pages and machines: everything but the function."""
        said = {name: getattr(self.lesson, name) for name in self.lesson.__struct_fields__ if name != "run"}
        verdicts = {"verdict": self.evidence.verdict, "passes": self.passes, "trouble": self.trouble}
        found = msgspec.to_builtins(self.evidence)
        return {"id": self.lesson.id} | said | verdicts | {"seconds": round(self.seconds, 3)} | found


def lesson(
    *items: str,
    title: str,
    where: str,
    slide: str,
    expects: Verdict = HOLDS,
    mistakes: Sequence[str] = (),
    kind: Kind = "computed",
) -> Callable[[Callable[[], Evidence]], Lesson]:
    """A function becomes a lesson; its docstring is the sentence on what it shows."""

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


def do(lesson: Lesson) -> Done:
    begun = perf_counter()
    evidence = lesson.run()
    return Done(lesson, evidence, perf_counter() - begun)


# --- holding against numbers ----------------------------------------------------------------------------------------


def claim(says: str, holds: bool, found: str = "", *, only_if: str = "", anyway: bool = False) -> Claim:
    return Claim(says=says, found=found, holds=bool(holds), only_if=only_if, anyway=bool(anyway))


def timed_claim(says: str, holds: bool, found: str) -> Claim:
    """A sentence that rests on a clock."""
    return Claim(says=says, found=found, holds=bool(holds), timed=True)


def slip(says: str, holds: bool, found: str = "") -> Claim:
    """A sentence in which the slide is wrong: the lesson fails if it holds."""
    return Claim(says=says, found=found, holds=bool(holds), mistake=True)


def printed(value: float, text: str) -> bool:
    """Rounded to as many digits as the slide prints, it is what the slide prints."""
    digits = len(text.partition(".")[2])
    return f"{value:.{digits}f}".replace("-0.00", "0.00") == text.replace("-0.00", "0.00")


def all_printed(values: Sequence[float], texts: Sequence[str]) -> bool:
    return all(printed(value, text) for value, text in zip(values, texts, strict=True))


def near(one: float, other: float, within: float = 1e-9) -> bool:
    return abs(one - other) <= within


def numbers(values: Sequence[float], digits: int = 2) -> str:
    return " ".join(f"{value:.{digits}f}" for value in values)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    return Table(title=title, columns=tuple(columns), rows=tuple(tuple(map(str, row)) for row in rows))
