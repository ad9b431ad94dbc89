"""The rule of import-linter that rooms are entered by their public modules: those that `__all__` of the room names.

`python tests/helpers/room_contract.py` prints for every room the modules that others import.
"""

import ast
from pathlib import Path
from typing import Any

import grimp
from importlinter import Contract, ContractCheck, fields, output

ROOT = Path(__file__).resolve().parents[2]


def find_rooms(package: str) -> list[str]:
    """`triform.core`, `triform.data`, …"""
    return sorted(f"{package}.{init.parent.name}" for init in (ROOT / package).glob("*/__init__.py"))


def read_public(room: str) -> set[str]:
    """What `__all__` of a room lists; read as text, for importing it could import torch."""
    tree = ast.parse((ROOT / room.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def find_entries(graph: grimp.ImportGraph, room: str) -> dict[str, set[str]]:
    """Module of the room → modules outside that import it."""
    inside = {name for name in graph.modules if name == room or name.startswith(f"{room}.")}
    entries: dict[str, set[str]] = {}
    for name in inside - {room}:
        if outside := graph.find_modules_that_directly_import(name) - inside:
            entries.setdefault(name.removeprefix(f"{room}.").split(".")[0], set()).update(outside)
    return entries


class RoomContract(Contract):
    """Nothing outside a room imports a module of it that its `__all__` does not list."""

    type_name = "rooms"
    package = fields.StringField()

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        past: list[str] = []
        for room in find_rooms(str(self.package)):
            public = read_public(room)
            for module, importers in find_entries(graph, room).items():
                if module not in public:
                    past += [f"{importer} -> {room}.{module}" for importer in sorted(importers)]
        return ContractCheck(kept=not past, metadata={"past": past})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for link in check.metadata["past"]:
            output.print_error(f"{link}: not in the room's __all__")


def print_rooms() -> None:
    packages: Any = ("triform", "triform_lectures", "little_world")
    graph = grimp.build_graph(*packages, exclude_type_checking_imports=True)
    for room in find_rooms("triform"):
        print(room, *sorted(find_entries(graph, room)))


if __name__ == "__main__":
    print_rooms()
