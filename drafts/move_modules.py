"""move_modules.py MAP.json [ROOT]: git mv modules and rewrite imports, dotted names and paths. MAP: old dotted -> new dotted."""
import ast, json, os, re, subprocess, symtable, sys
from pathlib import Path

MAP = json.load(open(sys.argv[1])); ROOT = Path(sys.argv[2] if len(sys.argv) > 2 else ".").resolve(); os.chdir(ROOT)
run = lambda *a: subprocess.run(a, check=True, capture_output=True, text=True).stdout
tracked = run("git", "ls-files").split("\n")
def path_of(mod):
    p = Path(mod.replace(".", "/"))
    return p / "__init__.py" if (ROOT / p).is_dir() else p.with_suffix(".py")
# expand packages
full = {}
for old, new in MAP.items():
    p = ROOT / old.replace(".", "/")
    if p.is_dir():
        for f in tracked:
            if f.startswith(old.replace(".", "/") + "/"):
                rel = f[len(old) + 1:]
                if f.endswith(".py"):
                    m = f[:-3].replace("/", "."); m = m.removesuffix(".__init__")
                    if m not in MAP or m == old:
                        full[m] = new + m[len(old):]
    else:
        full[old] = new
MODULES = set()
for f in tracked:
    if f.endswith(".py") and f.split("/")[0] in ("triform", "triform_lectures", "little_world"):
        m = f[:-3].replace("/", "."); MODULES.add(m.removesuffix(".__init__"))
missing = [m for m in full if m not in MODULES]
if missing: sys.exit(f"not modules: {missing}")

def offsets(text):
    out = [0]
    for line in text.splitlines(keepends=True): out.append(out[-1] + len(line.encode()))
    return out

def rewrite_py(text, file):
    try: tree = ast.parse(text)
    except SyntaxError: return text
    data = text.encode(); at = offsets(text); edits = []; local = {}  # bound name -> new
    pos = lambda l, c: at[l - 1] + c
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            groups = {}
            changed = False
            for a in node.names:
                sub = f"{node.module}.{a.name}"
                if sub in full:
                    parent, leaf = full[sub].rpartition(".")[::2]; changed = True
                    if a.asname is None and leaf != a.name: local[a.name] = leaf
                    if a.asname is not None and a.asname == leaf: groups.setdefault(parent, []).append((leaf, None))
                    else: groups.setdefault(parent, []).append((leaf, a.asname))
                else:
                    m = full.get(node.module, node.module); changed |= m != node.module
                    groups.setdefault(m, []).append((a.name, a.asname))
            if changed:
                ind = " " * node.col_offset
                lines = []
                for m, names in groups.items():
                    items = ", ".join(n if s is None else f"{n} as {s}" for n, s in names)
                    stmt = f"from {m} import {items}" if m else f"import {items}"
                    if len(ind + stmt) > 120:
                        stmt = f"from {m} import (\n" + "".join(f"{ind}    {n if s is None else f'{n} as {s}'},\n" for n, s in names) + f"{ind})"
                    lines.append(stmt)
                edits.append((pos(node.lineno, node.col_offset), pos(node.end_lineno, node.end_col_offset), ("\n" + ind).join(lines)))
        elif isinstance(node, ast.Import):
            for a in node.names:
                if a.name in full:
                    edits.append((pos(a.lineno, a.col_offset), pos(a.lineno, a.col_offset) + len(a.name.encode()), full[a.name]))
    if local:
        table = symtable.symtable(text, file, "exec")
        # scope-aware Name replacement
        def tables_by(t): return {(c.get_type(), c.get_name(), c.get_lineno()): c for c in t.get_children()}
        def visit(node, table, shadow):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.Name) and child.id in local and child.id not in shadow:
                    edits.append((pos(child.lineno, child.col_offset), pos(child.end_lineno, child.end_col_offset), local[child.id]))
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.ClassDef)):
                    names = bound(child)
                    imported = imports_in(child)
                    # decorators/defaults are in the outer scope; approximate by same shadow for simplicity
                    visit(child, table, (shadow | (names & set(local))) - (imported & set(local)))
                else:
                    visit(child, table, shadow)
        def imports_in(fn):
            out = set()
            for n in own_nodes(fn):
                if isinstance(n, ast.ImportFrom):
                    for a in n.names:
                        if f"{n.module}.{a.name}" in full and a.asname is None: out.add(a.name)
            return out
        def own_nodes(fn):
            stack = list(ast.iter_child_nodes(fn))
            while stack:
                n = stack.pop(); yield n
                if not isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
                    stack.extend(ast.iter_child_nodes(n))
        def bound(fn):
            out = set()
            if isinstance(fn, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                a = fn.args
                out |= {x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)} | ({a.vararg.arg} if a.vararg else set()) | ({a.kwarg.arg} if a.kwarg else set())
            for n in own_nodes(fn):
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store): out.add(n.id)
                if isinstance(n, (ast.FunctionDef, ast.ClassDef)): out.add(n.name)
                if isinstance(n, ast.ExceptHandler) and n.name: out.add(n.name)
            return out
        modlevel = {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module for a in n.names if f"{n.module}.{a.name}" in full and a.asname is None and n.col_offset == 0}
        top_bound = {n.id for n in ast.walk(tree) if False}
        visit(tree, table, set(local) - modlevel)
        # function-level imports un-shadow inside
        for old, new in local.items():
            for m in re.finditer(rf"\b{new}\b", text):
                print(f"note {file}: {new!r} already used near offset {m.start()} (was {old})"); break
    edits = sorted(set(edits), reverse=True)
    for s, e, new in edits: data = data[:s] + new.encode() + data[e:]
    return data.decode()

dotted = re.compile(r"\btriform(?:_lectures)?(?:\.\w+)+|\blittle_world(?:\.\w+)+")
def rewrite_dotted(text):
    def sub(m):
        s = m.group(0); parts = s.split(".")
        for n in range(len(parts), 0, -1):
            head = ".".join(parts[:n])
            if head in full: return ".".join([full[head], *parts[n:]])
        return s
    return dotted.sub(sub, text)
paths = {}
for old, new in full.items():
    o, n = str(path_of(old)), None
    isdir = (ROOT / old.replace(".", "/")).is_dir()
    n = new.replace(".", "/") + ("/__init__.py" if isdir else ".py")
    paths[o] = n
short = {o.removeprefix("triform/"): n.removeprefix("triform/") for o, n in paths.items() if o.startswith("triform/")}
pathre = re.compile(r"(?<![\w/])(?:triform/)?((?:\w+/)+\w+\.py|\w+\.py)")
def rewrite_paths(text):
    def sub(m):
        whole = m.group(0)
        if whole in paths: return paths[whole]
        if "/" in whole and whole in short: return short[whole] if (paths["triform/" + whole]).startswith("triform/") else paths["triform/" + whole]
        return whole
    return pathre.sub(sub, text)

for f in tracked:
    if not f or not Path(f).exists(): continue
    ext = f.rsplit(".", 1)[-1]
    if ext not in ("py", "md", "toml", "js", "html", "yaml", "txt") and f not in ("Makefile", ".ci/run") or f == "constraints.txt": continue
    if f in ("docs/lab.md", "CHANGELOG.md"): continue
    text = Path(f).read_text()
    new = rewrite_py(text, f) if ext == "py" else text
    new = rewrite_paths(rewrite_dotted(new))
    if new != text: Path(f).write_text(new)
for o, n in paths.items():
    Path(n).parent.mkdir(parents=True, exist_ok=True)
    run("git", "mv", o, n)
# non-py files of moved packages
for old, new in MAP.items():
    d = old.replace(".", "/") + "/"
    for f in run("git", "ls-files", d).split("\n"):
        if f and Path(f).exists():
            t = new.replace(".", "/") + "/" + f[len(d):]; Path(t).parent.mkdir(parents=True, exist_ok=True); run("git", "mv", f, t)
