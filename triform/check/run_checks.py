"""`check`: proofs on a model as it is, built, trained or loaded, each a sentence with its largest error in each dtype.

Every dtype that `load` takes is proven, each with bounds of its own; an error is relative to the largest number
compared. Refuses to know files and text.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import torch
from rich.markup import escape
from rich.table import Table

from triform.check.checks import CLAIMS, Claim
from triform.check.fixtures import Finding, Lab
from triform.core.forms import Form
from triform.spec import ModelSpec


class Bound(NamedTuple):
    """The largest error that rounding may make: through the whole model, and in a single operation of it."""

    model: float
    single: float


# In units of the last place (2.2e-16, 1.2e-7, 7.8e-3, 9.8e-4) the largest errors seen, on a trained model of 30 layers,
# are 23 in float32, 2.2 in bfloat16 and 3.2 in float16 through the whole model; 12, 0.5 and 0.5 in one operation.
BOUNDS = {
    torch.float64: Bound(1e-9, 1e-9),
    torch.float32: Bound(1e-4, 1e-5),
    torch.bfloat16: Bound(1e-1, 1.5e-2),
    torch.float16: Bound(2e-2, 2e-3),
}


class Proof(msgspec.Struct, frozen=True):
    """One line of the table: errors and bounds by the name of the dtype."""

    name: str
    says: str
    cases: int
    errors: dict[str, float]
    bounds: dict[str, float]
    why: str = ""

    @property
    def broken(self) -> tuple[str, ...]:
        """The dtypes in which the claim does not hold."""
        return tuple(dtype for dtype, error in self.errors.items() if not error <= self.bounds[dtype])

    @property
    def holds(self) -> bool:
        return not self.broken


class Report(msgspec.Struct, frozen=True):
    """All proofs that apply to a model."""

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
        table.add_column("proof")
        for column in ("cases", *map(name_of, BOUNDS), ""):
            table.add_column(column, justify="right", no_wrap=True)
        for p in self.proofs:
            errors = (f"[bold red]{short(e)}[/]" if dtype in p.broken else short(e) for dtype, e in p.errors.items())
            mark = "[green]holds[/]" if p.holds else "[bold red]BROKEN[/]"
            table.add_row(f"[bold]{p.name}[/]\n[dim]{escape(p.why or p.says)}[/]", f"{p.cases:,}", *errors, mark)
        return table


def caption() -> str:
    """What the errors are held against."""
    bounds = ", ".join(f"{name_of(dtype)} {bound.model:.0e} ({bound.single:.1e})" for dtype, bound in BOUNDS.items())
    return f"Largest relative errors. Bounds, in brackets those of one operation: {bounds}; nothing at all may leak."


def short(error: float) -> str:
    return "0" if error == 0 else f"{error:.1e}"


def name_of(dtype: torch.dtype) -> str:
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
    """Every claim that applies, on copies of the network in every dtype; `said` hears each as it begins."""
    copies = {dtype: copy.deepcopy(network).to("cpu", dtype).eval() for dtype in BOUNDS}
    proofs = []
    for claim in (claim for claim in claims if claim.applies(spec)):
        said(claim.name)
        labs = {dtype: Lab(spec, copied, torch.Generator().manual_seed(seed)) for dtype, copied in copies.items()}
        proofs.append(proof(claim, {dtype: examined(claim, lab) for dtype, lab in labs.items()}))
    return Report(spec.form, tuple(proofs))


def examined(claim: Claim, lab: Lab) -> Finding:
    """A road that cannot even be walked refutes its claim."""
    try:
        with torch.no_grad():
            return claim.examine(lab)
    except (RuntimeError, IndexError, ValueError) as error:
        return Finding(0, float("inf"), f"{type(error).__name__}: {error}".splitlines()[0])


def proof(claim: Claim, findings: Mapping[torch.dtype, Finding]) -> Proof:
    bounds = {dtype: bound.single if claim.single else bound.model for dtype, bound in BOUNDS.items()}
    return Proof(
        claim.name,
        claim.says,
        sum(found.cases for found in findings.values()),
        errors={name_of(dtype): found.error for dtype, found in findings.items()},
        bounds={name_of(dtype): 0.0 if claim.exact else bound for dtype, bound in bounds.items()},
        why=next((found.why for found in findings.values() if found.why), ""),
    )
