"""Mutants: copies of a module with one small mistake planted, which some test should notice.

A mistake is made in the syntax tree: a comparison off by one, a sign turned, a condition reversed, a number changed, a
call left out. Messages, annotations and type-only code are left alone: a test that held them would hold wording.
"""

import ast
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip


class Mutant(NamedTuple):
    """`number` tells the mutants of a file apart, `what` says what was changed, `source` is the whole file after it."""

    path: str
    number: int
    line: int
    what: str
    source: str


def make_mutants(path: Path, *, root: Path) -> Iterator[Mutant]:
    """Every mutant of a file, in the order of its lines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for number, node in enumerate(find_places(tree)):
        changed = deepcopy(tree)
        same = find_places(changed)[number]
        what = plant(same)
        yield Mutant(
            str(path.relative_to(root)), number, node.lineno, what, ast.unparse(ast.fix_missing_locations(changed))
        )


def find_places(tree: ast.Module) -> list[ast.expr | ast.stmt]:
    """The nodes in which a mistake can be planted, in a fixed order."""
    finder = _Finder()
    finder.visit(tree)
    return sorted(finder.places, key=lambda node: (node.lineno, node.col_offset, node.end_col_offset or 0))


def plant(node: ast.expr | ast.stmt) -> str:
    """One mistake, in place; what it is."""
    before = ast.unparse(node)
    match node:
        case ast.Compare():
            node.ops[0] = COMPARED[type(node.ops[0])]()
        case ast.BinOp():
            node.op = COMPUTED[type(node.op)]()
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.UnaryOp():
            node.op = ast.UAdd() if isinstance(node.op, ast.USub) else ast.Not()
            if isinstance(node.op, ast.Not):
                node.operand = ast.UnaryOp(ast.Not(), node.operand)
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant(value=float()):
            node.value = node.value * 2
        case ast.Constant(value=int()):
            node.value = node.value + 1
        case ast.If() | ast.While() | ast.IfExp():
            node.test = ast.UnaryOp(ast.Not(), node.test)
            return f"if {ast.unparse(node.test)}"
        case ast.Expr():
            node.value = ast.Constant(value=None)
        case _:
            raise TypeError(f"no mistake is known for {type(node).__name__}")
    return f"{before}  →  {ast.unparse(node)}"


class _Finder(ast.NodeVisitor):
    def __init__(self) -> None:
        self.places: list[ast.expr | ast.stmt] = []

    def visit_Raise(self, node: ast.Raise) -> None:
        """Errors are told in words."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """And so are texts."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in ("__repr__", "__rich__", "__str__", "__dir__"):
            return
        for default in (*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)  # type: ignore[arg-type]

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test) or "__name__" in ast.unparse(node.test):
            return
        self._take(node)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1 and type(node.ops[0]) in COMPARED:
            self._take(node)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in COMPUTED and not (_is_text(node.left) or _is_text(node.right)):
            self._take(node)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._take(node)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub | ast.Not):
            self._take(node)
        if not isinstance(node.operand, ast.Constant):
            self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._take(node)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._take(node)
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if _is_number(node):
            self._take(node)

    def _take(self, node: ast.expr | ast.stmt) -> None:
        self.places.append(node)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float)
