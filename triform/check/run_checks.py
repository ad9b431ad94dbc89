"""`check`: run all checks on a model in every dtype that `load` takes, and report the largest error of each.

Each dtype has its own bounds; errors are relative to the largest number compared.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import torch
from rich.markup import escape
from rich.table import Table

from triform.check.checks import CHECKS, Check
from triform.check.fixtures import CheckFixture
from triform.core.change_weights import to_float32
from triform.core.forms import Form
from triform.spec import ModelSpec


class ErrorBound(NamedTuple):
    """The largest error that rounding may cause: through the whole model, and in a single operation."""

    model: float
    single: float


# In units of the last place (2.2e-16, 1.2e-7, 7.8e-3, 9.8e-4), the largest errors on a trained model of 30 layers are
# 23 in float32, 2.2 in bfloat16 and 3.2 in float16 through the whole model; 12, 0.5 and 0.5 in one operation.
BOUNDS = {
    torch.float64: ErrorBound(1e-9, 1e-9),
    torch.float32: ErrorBound(1e-4, 1e-5),
    torch.bfloat16: ErrorBound(1e-1, 1.5e-2),
    torch.float16: ErrorBound(2e-2, 2e-3),
}


class CheckOutcome(NamedTuple):
    """The number of comparisons in one dtype, and the largest error."""

    cases: int
    error: float
    why: str = ""  # the exception, if one stopped the comparison


class CheckResult(msgspec.Struct, frozen=True):
    """One row of the table: errors and bounds by dtype name."""

    name: str
    says: str
    cases: int
    errors: dict[str, float]
    bounds: dict[str, float]
    why: str = ""

    @property
    def failed(self) -> tuple[str, ...]:
        """The dtypes in which the check fails."""
        return tuple(dtype for dtype, error in self.errors.items() if not error <= self.bounds[dtype])

    @property
    def holds(self) -> bool:
        return not self.failed


class CheckReport(msgspec.Struct, frozen=True):
    """The results of all checks that apply to a model."""

    form: str
    proofs: tuple[CheckResult, ...]

    @property
    def holds(self) -> bool:
        return all(proof.holds for proof in self.proofs)

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(proof.name for proof in self.proofs if not proof.holds)

    def to_json(self) -> str:
        proofs = [msgspec.to_builtins(proof) | {"holds": proof.holds} for proof in self.proofs]
        return msgspec.json.encode({"holds": self.holds, "form": self.form, "proofs": proofs}).decode()

    def __rich__(self) -> Table:
        table = Table(caption=caption(), caption_justify="left")
        table.add_column("check")
        for column in ("cases", *map(dtype_name, BOUNDS), ""):
            table.add_column(column, justify="right", no_wrap=True)
        for p in self.proofs:
            errors = [(dtype, "0" if error == 0 else f"{error:.1e}") for dtype, error in p.errors.items()]
            cells = (f"[bold red]{error}[/]" if dtype in p.failed else error for dtype, error in errors)
            mark = "[green]pass[/]" if p.holds else "[bold red]FAIL[/]"
            table.add_row(f"[bold]{p.name}[/]\n[dim]{escape(p.why or p.says)}[/]", f"{p.cases:,}", *cells, mark)
        return table


def caption() -> str:
    bounds = ", ".join(f"{dtype_name(dtype)} {bound.model:.0e} ({bound.single:.1e})" for dtype, bound in BOUNDS.items())
    return f"Largest relative errors. Bounds, in brackets those of one operation: {bounds}; leaks must be exactly 0."


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@torch.inference_mode(False)
def check(
    spec: ModelSpec,
    network: Form,
    *,
    seed: int = 0,
    checks: Sequence[Check] = CHECKS,
    on_check: Callable[[str], None] = lambda name: None,
) -> CheckReport:
    """Every check that applies, on copies of the network in every dtype; `on_check` is called with each name.

    What has few bits is checked with the same numbers in float; what few bits change is in `weight_quality.py`.
    """
    network = to_float32(network, spec)
    copies = {dtype: copy.deepcopy(network).to("cpu", dtype).eval() for dtype in BOUNDS}
    proofs = []
    for claim in (claim for claim in checks if claim.applies(spec)):
        on_check(claim.name)
        labs = {
            dtype: CheckFixture(spec, copied, torch.Generator().manual_seed(seed)) for dtype, copied in copies.items()
        }
        proofs.append(make_result(claim, {dtype: run_check(claim, lab) for dtype, lab in labs.items()}))
    return CheckReport(spec.form, tuple(proofs))


def run_check(claim: Check, lab: CheckFixture) -> CheckOutcome:
    """A call path that raises fails the check."""
    try:
        with torch.no_grad():
            errors = list(claim.errors(lab))
            return CheckOutcome(len(errors), max(errors))
    except (RuntimeError, IndexError, ValueError) as error:
        return CheckOutcome(0, float("inf"), f"{type(error).__name__}: {error}".splitlines()[0])


def make_result(claim: Check, outcomes: Mapping[torch.dtype, CheckOutcome]) -> CheckResult:
    """The outcomes of one check in all dtypes, beside their bounds."""
    bounds = {dtype: bound.single if claim.single else bound.model for dtype, bound in BOUNDS.items()}
    return CheckResult(
        claim.name,
        claim.says,
        sum(outcome.cases for outcome in outcomes.values()),
        errors={dtype_name(dtype): outcome.error for dtype, outcome in outcomes.items()},
        bounds={dtype_name(dtype): 0.0 if claim.exact else bound for dtype, bound in bounds.items()},
        why=next((outcome.why for outcome in outcomes.values() if outcome.why), ""),
    )
