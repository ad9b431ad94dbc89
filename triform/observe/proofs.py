"""`check`: proofs on a model as it is, built, trained or loaded, each a sentence with its largest error.

float64 decides, with a bound of 1e-9 relative to the largest number compared, or of exactly 0; the same in float32 is
printed beside it. Refuses to know files and text.
"""

import copy
from collections.abc import Callable, Sequence

import msgspec
import torch
from rich.markup import escape
from rich.table import Table

from triform.core.forms import Form
from triform.observe.claims import CLAIMS, Claim
from triform.observe.lab import Finding, Lab
from triform.spec import ModelSpec

BOUND = 1e-9


class Proof(msgspec.Struct, frozen=True):
    """One line of the table."""

    name: str
    says: str
    cases: int
    error: float
    error_float32: float
    bound: float
    holds: bool
    why: str = ""


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
        return msgspec.json.encode({"holds": self.holds, "form": self.form, "proofs": self.proofs}).decode()

    def __rich__(self) -> Table:
        table = Table()
        table.add_column("proof")
        for column in ("cases", "float64", "bound", "float32", ""):
            table.add_column(column, justify="right", no_wrap=True)
        for p in self.proofs:
            mark = "[green]holds[/]" if p.holds else "[bold red]BROKEN[/]"
            bound = "exact" if p.bound == 0 else f"{p.bound:.0e}"
            table.add_row(
                f"[bold]{p.name}[/]\n[dim]{escape(p.why or p.says)}[/]",
                f"{p.cases:,}",
                short(p.error),
                bound,
                short(p.error_float32),
                mark,
            )
        return table


def short(error: float) -> str:
    return "0" if error == 0 else f"{error:.1e}"


def check(
    spec: ModelSpec,
    network: Form,
    *,
    seed: int = 0,
    claims: Sequence[Claim] = CLAIMS,
    said: Callable[[str], None] = lambda name: None,
) -> Report:
    """Every claim that applies, on copies of the network in float64 and float32; `said` hears each as it begins."""
    precise = copy.deepcopy(network).to("cpu", torch.float64).eval()
    single = copy.deepcopy(network).to("cpu", torch.float32).eval()
    proofs = []
    for claim in (claim for claim in claims if claim.applies(spec)):
        said(claim.name)
        labs = [Lab(spec, copied, torch.Generator().manual_seed(seed)) for copied in (precise, single)]
        proofs.append(proof(claim, *(examined(claim, lab) for lab in labs)))
    return Report(spec.form, tuple(proofs))


def examined(claim: Claim, lab: Lab) -> Finding:
    """A road that cannot even be walked refutes its claim."""
    try:
        with torch.no_grad():
            return claim.examine(lab)
    except (RuntimeError, IndexError, ValueError) as error:
        return Finding(0, float("inf"), f"{type(error).__name__}: {error}".splitlines()[0])


def proof(claim: Claim, precise: Finding, single: Finding) -> Proof:
    bound = 0.0 if claim.exact else BOUND
    holds = precise.error <= bound and (not claim.exact or single.error <= bound)
    return Proof(
        claim.name, claim.says, precise.cases, precise.error, single.error, bound, holds, precise.why or single.why
    )
