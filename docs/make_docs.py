"""Write docs/map.md (one line per file) and docs/api.md (the public Python surface) from the source: `make docs`.

The source is parsed, not imported. `tests/test_docs.py` compares both files with what this script would write.
"""

import ast
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("triform", "triform_lectures", "little_world")
MAX_LINE = 120
Function = ast.FunctionDef | ast.AsyncFunctionDef


# --- the map -------------------------------------------------------------------------------------------------------


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence, on one line."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    found = re.match(r".+?[.!?](?=\s|$)", paragraph)
    return found.group() if found else paragraph


def describe(path: Path) -> str:
    """The first sentence of a file: of its docstring, or of the comment that it begins with."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        runs = f"Runs `python -m {'.'.join(path.relative_to(ROOT).parts[:-1])}`."
        return first_sentence(ast.get_docstring(ast.parse(text)) or (runs if path.name == "__main__.py" else ""))
    if path.suffix in (".js", ".css"):
        comment = re.match(r"/\*(.+?)\*/|((?://[^\n]*\n)+)", text, flags=re.S)
        return first_sentence(re.sub(r"^// ?", "", comment.group(1) or comment.group(2), flags=re.M)) if comment else ""
    title = re.search(r"<title>(.+?)</title>", text)
    return f"The page “{title.group(1)}”." if title else ""


def files_of(folder: Path) -> list[Path]:
    kinds = (".py", ".js", ".css", ".html")
    return sorted(path for path in folder.iterdir() if path.suffix in kinds and path.name != "__init__.py")


def make_map() -> str:
    """One line per file, in the order of the folders."""
    lines = [
        "# Map",
        "",
        "One line per file: the first sentence of its docstring. Written by `make docs`, held by `tests/test_docs.py`.",
    ]
    for package in PACKAGES:
        for folder in (ROOT / package, *sorted(path for path in (ROOT / package).rglob("*") if path.is_dir())):
            files = files_of(folder)
            package_file = folder / "__init__.py"
            if not files and not package_file.exists():
                continue
            lines += ["", f"## {folder.relative_to(ROOT)}/", ""]
            if package_file.exists():
                lines += [describe(package_file), ""]
            lines += [f"- `{path.name}`: {describe(path) or '(no sentence)'}" for path in files]
    return "\n".join(lines).replace("\n\n\n", "\n\n").rstrip() + "\n"


# --- the public surface --------------------------------------------------------------------------------------------


class Source(NamedTuple):
    """A module as text and as a tree."""

    name: str
    text: str
    tree: ast.Module


class Definition(NamedTuple):
    """A class or function, and the module that it stands in."""

    module: Source
    node: ast.ClassDef | Function


def path_of(module: str) -> Path:
    place = ROOT / module.replace(".", "/")
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@cache
def read_module(name: str) -> Source:
    text = path_of(name).read_text(encoding="utf-8")
    return Source(name, text, ast.parse(text))


def find(name: str, *, module: str) -> Definition | None:
    """Where a name of a module is defined, through any number of imports; None for modules and for names of others."""
    source = read_module(module)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef | Function) and node.name == name:
            return Definition(source, node)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            for alias in node.names:
                if (alias.asname or alias.name) == name and not path_of(f"{node.module}.{alias.name}").exists():
                    return find(alias.name, module=str(node.module))
    return None


def values_of(source: Source) -> dict[str, object]:
    """The module's plain values: dicts and lists of strings."""
    found: dict[str, object] = {}
    for node in source.tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


def is_public(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_")


def decorators(node: ast.ClassDef | Function) -> list[str]:
    return [ast.unparse(each) for each in node.decorator_list]


def render_docstring(node: ast.ClassDef | Function, indent: str) -> list[str]:
    text = ast.get_docstring(node)
    return textwrap.indent(f'"""{text}"""', indent).split("\n") if text else []


def render_arguments(arguments: ast.arguments) -> list[str]:
    """Each as it is written: `length: int | None = None`."""

    def one(argument: ast.arg, default: ast.expr | None = None, stars: str = "") -> str:
        kind = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
        equals = " = " if kind else "="
        return f"{stars}{argument.arg}{kind}{equals + ast.unparse(default) if default else ''}"

    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    found = [one(argument, default) for argument, default in zip(positional, defaults, strict=True)]
    if arguments.posonlyargs:
        found.insert(len(arguments.posonlyargs), "/")
    if arguments.vararg:
        found.append(one(arguments.vararg, stars="*"))
    elif arguments.kwonlyargs:
        found.append("*")
    found += [one(*each) for each in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return found + ([one(arguments.kwarg, stars="**")] if arguments.kwarg else [])


def render_function(node: Function, indent: str = "") -> list[str]:
    """Its signature, one line per argument where it is long, and its docstring."""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    begin = f"{indent}{'async ' if isinstance(node, ast.AsyncFunctionDef) else ''}def {node.name}("
    arguments, inner = render_arguments(node.args), indent + 4 * " "
    lines = [f"{begin}{', '.join(arguments)}){returns}"]
    if len(lines[0]) > MAX_LINE:
        lines = [begin, *(f"{inner}{argument}," for argument in arguments), f"{indent}){returns}"]
    marks = [each for each in decorators(node) if re.search(r"property|classmethod|staticmethod|overload", each)]
    return [*(f"{indent}@{mark}" for mark in marks), *lines, *render_docstring(node, inner)]


def public_methods(node: ast.ClassDef) -> Iterator[Function]:
    """Methods without an underscore; of one with overloads, the overloads."""
    methods = [each for each in node.body if isinstance(each, Function) and is_public(each)]
    overloaded = {each.name for each in methods if "overload" in decorators(each)}
    for each in methods:
        if each.name not in overloaded or "overload" in decorators(each):
            yield each


def render_class(definition: Definition) -> list[str]:
    """As a stub: docstring, fields with their comments, public methods."""
    source, node = definition
    if not isinstance(node, ast.ClassDef):
        return render_function(node)
    rows = source.text.split("\n")
    bases = ", ".join(map(ast.unparse, node.bases))
    lines = [f"class {node.name}({bases}):" if bases else f"class {node.name}:", *render_docstring(node, 4 * " ")]
    fields = [
        each for each in node.body if isinstance(each, ast.AnnAssign) and not ast.unparse(each.target).startswith("_")
    ]
    for each in fields:
        lines += rows[each.lineno - 1 : each.end_lineno]
    for method in public_methods(node):
        lines += ["", *render_function(method, 4 * " ")]
    return lines


def block(lines: list[str]) -> list[str]:
    return ["```python", *lines, "```", ""]


def names_in(annotation: ast.expr | None) -> Iterator[str]:
    for node in ast.walk(annotation) if annotation else ():
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\w+", node.value)


def answer_types(model: Definition) -> dict[str, Definition]:
    """What the methods of Model return, what the tasks answer, and the classes that their fields are of."""
    found: dict[str, Definition] = {}

    def add(name: str, module: str) -> None:
        definition = find(name, module=module)
        if (
            definition is None
            or name in found
            or name in ("Model", "View", "ModelSpec")
            or not is_public(definition.node)
        ):
            return
        if isinstance(definition.node, ast.ClassDef):
            found[name] = definition
            for each in definition.node.body:
                if isinstance(each, ast.AnnAssign):
                    for part in names_in(each.annotation):
                        add(part, definition.module.name)

    if isinstance(model.node, ast.ClassDef):
        for method in public_methods(model.node):
            for name in names_in(method.returns):
                add(name, model.module.name)
    for path in sorted((ROOT / "triform" / "tasks").glob("*.py")):
        source = read_module(f"triform.tasks.{path.stem}")
        for node in source.tree.body:
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                if isinstance(base, ast.Subscript) and isinstance(base.slice, ast.Tuple) and len(base.slice.elts) == 3:
                    for name in names_in(base.slice.elts[2]):
                        add(name, source.name)
    return found


def make_api() -> str:
    """The public surface as stubs: `triform.__all__`, Model, View, the answers, the families, the specs."""
    front = values_of(read_module("triform"))
    where, exported = front["_MODULE_OF"], front["__all__"]
    if not isinstance(where, dict) or not isinstance(exported, list):
        raise SystemExit("triform/__init__.py: _MODULE_OF is a dict and __all__ a list of names, written out")
    lines = [
        "# The Python API",
        "",
        "What `import triform` offers, as stubs. Written by `make docs`, held by `tests/test_docs.py`.",
        "",
        "| name | from |",
        "|---|---|",
        *(f"| `triform.{name}` | `{where.get(name, 'triform')}` |" for name in exported),
        "",
    ]
    model = find("Model", module=where["Model"])
    view = find("View", module="triform.inspect.view")
    if model is None or view is None:
        raise SystemExit("Model or View is not where triform/__init__.py and triform/inspect/view.py say")
    lines += ["## Functions and errors", ""]
    for name in exported:
        definition = None if name in ("Model", "__version__") else find(name, module=where[name])
        if definition:
            lines += block(render_class(definition))
    lines += ["## Model", "", *block(render_class(model))]
    lines += ["## View: what `Model.look` returns", "", *block(render_class(view))]
    lines += ["## Answers", "", "What the methods of `Model` return and the tasks answer.", ""]
    for name, definition in sorted(answer_types(model).items()):
        lines += [f"`{name}`, in `{definition.module.name}`", "", *block(render_class(definition))]
    for name, title in (("families", "Families: functions that return a spec"), ("spec", "Specs: what a model is")):
        source = read_module(f"triform.{name}")
        lines += [f"## {title}", "", first_sentence(ast.get_docstring(source.tree) or ""), ""]
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef | Function) and is_public(node):
                lines += block(render_class(Definition(source, node)))
    return "\n".join(lines).rstrip() + "\n"


PAGES = {"map.md": make_map, "api.md": make_api}


if __name__ == "__main__":
    for name, make in PAGES.items():
        (ROOT / "docs" / name).write_text(make(), encoding="utf-8")
        print(f"docs/{name}")
