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

from triform.check.checks import CLAIMS, Claim
from triform.check.fixtures import Lab
from triform.core.forms import Form
from triform.spec import ModelSpec


class Bound(NamedTuple):
    """The largest error that rounding may cause: through the whole model, and in a single operation."""

    model: float
    single: float


# In units of the last place (2.2e-16, 1.2e-7, 7.8e-3, 9.8e-4), the largest errors on a trained model of 30 layers are
# 23 in float32, 2.2 in bfloat16 and 3.2 in float16 through the whole model; 12, 0.5 and 0.5 in one operation.
BOUNDS = {
    torch.float64: Bound(1e-9, 1e-9),
    torch.float32: Bound(1e-4, 1e-5),
    torch.bfloat16: Bound(1e-1, 1.5e-2),
    torch.float16: Bound(2e-2, 2e-3),
}


class Outcome(NamedTuple):
    """The number of comparisons in one dtype, and the largest error."""

    cases: int
    error: float
    why: str = ""  # the exception, if one stopped the comparison


class Proof(msgspec.Struct, frozen=True):
    """One row of the table: errors and bounds by dtype name."""

    name: str
    says: str
    cases: int
    errors: dict[str, float]
    bounds: dict[str, float]
    why: str = ""

    @property
    def broken(self) -> tuple[str, ...]:
        """The dtypes in which the check fails."""
        return tuple(dtype for dtype, error in self.errors.items() if not error <= self.bounds[dtype])

    @property
    def holds(self) -> bool:
        return not self.broken


class Report(msgspec.Struct, frozen=True):
    """The results of all checks that apply to a model."""

    form: str
    proofs: tuple[Proof, ...]

    @property
    def holds(self) -> bool:
        return all(proof.holds for proof in self.proofs)

    @property
    def broken(self) -> tuple[str, ...]:
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
            cells = (f"[bold red]{error}[/]" if dtype in p.broken else error for dtype, error in errors)
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
    claims: Sequence[Claim] = CLAIMS,
    said: Callable[[str], None] = lambda name: None,
) -> Report:
    """Every check that applies, on copies of the network in every dtype; `said` is called with each name."""
    copies = {dtype: copy.deepcopy(network).to("cpu", dtype).eval() for dtype in BOUNDS}
    proofs = []
    for claim in (claim for claim in claims if claim.applies(spec)):
        said(claim.name)
        labs = {dtype: Lab(spec, copied, torch.Generator().manual_seed(seed)) for dtype, copied in copies.items()}
        proofs.append(make_proof(claim, {dtype: run_claim(claim, lab) for dtype, lab in labs.items()}))
    return Report(spec.form, tuple(proofs))


def run_claim(claim: Claim, lab: Lab) -> Outcome:
    """A call path that raises fails the check."""
    try:
        with torch.no_grad():
            errors = list(claim.errors(lab))
            return Outcome(len(errors), max(errors))
    except (RuntimeError, IndexError, ValueError) as error:
        return Outcome(0, float("inf"), f"{type(error).__name__}: {error}".splitlines()[0])


def make_proof(claim: Claim, outcomes: Mapping[torch.dtype, Outcome]) -> Proof:
    bounds = {dtype: bound.single if claim.single else bound.model for dtype, bound in BOUNDS.items()}
    return Proof(
        claim.name,
        claim.says,
        sum(outcome.cases for outcome in outcomes.values()),
        errors={dtype_name(dtype): outcome.error for dtype, outcome in outcomes.items()},
        bounds={dtype_name(dtype): 0.0 if claim.exact else bound for dtype, bound in bounds.items()},
        why=next((outcome.why for outcome in outcomes.values() if outcome.why), ""),
    )
