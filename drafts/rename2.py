"""rename2.py ROOT MAP.json...: rename symbols with scope and type information.
Keys: "pkg.mod.name", "pkg.mod.Class.member", "pkg.mod.func(param)", "pkg.mod.Class.method(param)"."""
import ast, json, os, re, subprocess, sys
from collections import defaultdict
from pathlib import Path
ROOT = Path(sys.argv[1]).resolve(); os.chdir(ROOT)
MAP = {}
for f in sys.argv[2:]:
    for k, v in json.load(open(f)).items():
        if k in MAP and MAP[k] != v: print("CONFLICT", k, MAP[k], v)
        MAP.setdefault(k, v)
FILES = [f for f in subprocess.run(["git", "ls-files", "*.py"], capture_output=True, text=True).stdout.split() if Path(f).exists()]
PK = ("triform", "triform_lectures", "little_world")
def modname(f):
    return f[:-3].replace("/", ".").removesuffix(".__init__")
MODS = {modname(f): f for f in FILES}
TEXT = {f: Path(f).read_text() for f in FILES}
TREE = {f: ast.parse(TEXT[f]) for f in FILES}
edits = defaultdict(dict)   # file -> (start,end)->new (byte offsets)
OFF = {}
def off(f, line, col):
    if f not in OFF:
        o = [0]
        for l in TEXT[f].encode().split(b"\n"): o.append(o[-1] + len(l) + 1)
        OFF[f] = o
    return OFF[f][line - 1] + col
def edit(f, start, old, new):
    b = TEXT[f].encode()
    if b[start:start + len(old.encode())] != old.encode(): 
        print("MISMATCH", f, start, old, b[start:start+30]); return
    if not (re.match(rb"\w", b[start-1:start]) or re.match(rb"\w", b[start+len(old.encode()):start+len(old.encode())+1])):
        edits[f][(start, start + len(old.encode()))] = new
top = {}       # module-level: (mod, name) -> new
members = {}   # (class fullname, member) -> new
params = {}    # (func fullname, param) -> new
defs = {}      # fullname -> node kinds
for m, f in MODS.items():
    for n in TREE[f].body:
        for c in ([n] + (n.body + n.orelse if isinstance(n, ast.If) else [])):
            if isinstance(c, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)): defs[f"{m}.{c.name}"] = c
            elif isinstance(c, ast.Assign):
                for t in c.targets:
                    for x in ast.walk(t):
                        if isinstance(x, ast.Name): defs[f"{m}.{x.id}"] = c
            elif isinstance(c, ast.AnnAssign) and isinstance(c.target, ast.Name): defs[f"{m}.{c.target.id}"] = c
def class_members(c):
    out = set()
    for x in c.body:
        if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)): out.add(x.name)
        elif isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name): out.add(x.target.id)
        elif isinstance(x, ast.Assign): out |= {t.id for tt in x.targets for t in ast.walk(tt) if isinstance(t, ast.Name)}
    for x in ast.walk(c):
        if isinstance(x, ast.Attribute) and isinstance(x.ctx, ast.Store) and isinstance(x.value, ast.Name) and x.value.id == "self": out.add(x.attr)
    return out
missing = []
for k, v in MAP.items():
    base, par = (k[:-1].split("(") + [None])[:2] if k.endswith(")") else (k, None)
    mod, name = base.rpartition(".")[::2]
    if par:
        if base in defs and isinstance(defs[base], (ast.FunctionDef, ast.AsyncFunctionDef)): params[base, par] = v
        elif mod in defs and isinstance(defs[mod], ast.ClassDef) and name in class_members(defs[mod]): params[base, par] = v
        else: missing.append(k)
    elif base in defs: top[mod, name] = v
    elif mod in defs and isinstance(defs[mod], ast.ClassDef) and name in class_members(defs[mod]): members[mod, name] = v
    else: missing.append(k)
print(f"{len(top)} module-level, {len(members)} members, {len(params)} parameters, {len(missing)} missing")
for k in missing: print("MISSING", k)
taken = {}
for (m, n), v in top.items():
    if f"{m}.{v}" in defs and (m, v) not in top: print("COLLISION", m, n, "->", v)

# ---------- part A: module-level names, by scope
FN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMP = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
def own(fn):
    stack = [c for c in ast.iter_child_nodes(fn)]
    while stack:
        n = stack.pop(); yield n
        if not isinstance(n, FN + COMP + (ast.ClassDef,)): stack.extend(ast.iter_child_nodes(n))
        elif isinstance(n, COMP):   # walrus and first iter belong outside; ignore
            pass
def bound_in(fn):
    out = set()
    if isinstance(fn, FN):
        a = fn.args; out |= {x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)} | ({a.vararg.arg} if a.vararg else set()) | ({a.kwarg.arg} if a.kwarg else set())
    if isinstance(fn, COMP):
        for g in fn.generators: out |= {x.id for x in ast.walk(g.target) if isinstance(x, ast.Name)}
        return out
    body = fn.body if isinstance(getattr(fn, "body", None), list) else []
    glob = set()
    for st in body:
        for n in [st, *own(st)] if not isinstance(st, FN + (ast.ClassDef,)) else [st]:
            if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Store, ast.Del)): out.add(n.id)
            elif isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)): out.add(n.name)
            elif isinstance(n, ast.ExceptHandler) and n.name: out.add(n.name)
            elif isinstance(n, (ast.MatchAs, ast.MatchStar)) and n.name: out.add(n.name)
            elif isinstance(n, ast.MatchMapping) and n.rest: out.add(n.rest)
            elif isinstance(n, (ast.Global, ast.Nonlocal)): glob |= set(n.names)
    return out - glob
class Scope:
    """name -> ('sym', mod, name) | ('mod', modname) | None (local)"""
    def __init__(self, parent=None): self.parent, self.names = parent, {}
    def get(self, name):
        s = self
        while s is not None:
            if name in s.names: return s.names[name]
            s = s.parent
        return None
def resolve(mod, name):
    """the symbol's home: follow re-exports"""
    seen = set()
    while (mod, name) not in seen:
        seen.add((mod, name))
        if f"{mod}.{name}" in defs: return ("sym", mod, name)
        if f"{mod}.{name}" in MODS: return ("mod", f"{mod}.{name}")
        f = MODS.get(mod)
        if not f: return None
        for n in ast.walk(TREE[f]):
            if isinstance(n, ast.ImportFrom) and n.level == 0:
                for a in n.names:
                    if (a.asname or a.name) == name: mod, name = n.module, a.name; break
                else: continue
                break
        else: return None
    return None
def do_import(f, n, scope):
    if isinstance(n, ast.ImportFrom) and n.level == 0 and n.module:
        for a in n.names:
            r = resolve(n.module, a.name)
            bound = a.asname or a.name
            scope.names[bound] = r
            if r and r[0] == "sym" and (r[1], r[2]) in top:
                new = top[r[1], r[2]]
                edit(f, off(f, a.lineno, a.col_offset), a.name, new)
                if a.asname is None: pass
    elif isinstance(n, ast.Import):
        for a in n.names:
            if a.asname: scope.names[a.asname] = ("mod", a.name) if a.name in MODS else None
            else: scope.names[a.name.split(".")[0]] = ("mod", a.name.split(".")[0]) if a.name.split(".")[0] in MODS else None
            if a.name in MODS and not a.asname: pass
def target(scope, node):
    """what an expression denotes: ('mod', m) or ('sym', m, n) or ('member', class fullname, name)"""
    if isinstance(node, ast.Name): return scope.get(node.id)
    if isinstance(node, ast.Attribute):
        t = target(scope, node.value)
        if t and t[0] == "mod": return resolve(t[1], node.attr)
        if t and t[0] == "sym" and isinstance(defs.get(f"{t[1]}.{t[2]}"), ast.ClassDef): return ("member", f"{t[1]}.{t[2]}", node.attr)
    return None
unaliased = {}
def visit(f, node, scope):
    if isinstance(node, (ast.Import, ast.ImportFrom)): return
    if isinstance(node, ast.Name):
        t = scope.get(node.id)
        if t and t[0] == "sym" and (t[1], t[2]) in top and node.id == t[2]:
            edit(f, off(f, node.lineno, node.col_offset), node.id, top[t[1], t[2]])
        return
    if isinstance(node, ast.Attribute):
        t = target(scope, node)
        if t and t[0] == "sym" and (t[1], t[2]) in top:
            edit(f, off(f, node.end_lineno, node.end_col_offset) - len(node.attr.encode()), node.attr, top[t[1], t[2]])
        visit(f, node.value, scope); return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        pass
    if isinstance(node, ast.Call):
        fn = node.func
        tail = fn.attr if isinstance(fn, ast.Attribute) else fn.id if isinstance(fn, ast.Name) else ""
        if tail in ("setattr", "getattr", "hasattr", "delattr", "object") and len(node.args) >= 2 and isinstance(node.args[1], ast.Constant) and isinstance(node.args[1].value, str):
            t = target(scope, node.args[0]); s = node.args[1].value; new = None
            if t and t[0] == "mod":
                r = resolve(t[1], s)
                if r and r[0] == "sym": new = top.get((r[1], r[2]))
            elif t and t[0] == "sym": new = members.get((f"{t[1]}.{t[2]}", s))
            if new:
                c = node.args[1]; edit(f, off(f, c.lineno, c.col_offset) + 1, s, new)
        # keyword arguments of module-level functions
        t = target(scope, fn)
        if t and t[0] == "sym":
            full = f"{t[1]}.{t[2]}"
            for k in node.keywords:
                if k.arg and (full, k.arg) in params: edit(f, off(f, k.lineno, k.col_offset), k.arg, params[full, k.arg])
                elif k.arg and (full, k.arg) in members: edit(f, off(f, k.lineno, k.col_offset), k.arg, members[full, k.arg])
        if tail == "partial" and node.args:
            t = target(scope, node.args[0])
            if t and t[0] == "sym":
                for k in node.keywords:
                    if k.arg and (f"{t[1]}.{t[2]}", k.arg) in params: edit(f, off(f, k.lineno, k.col_offset), k.arg, params[f"{t[1]}.{t[2]}", k.arg])
    if isinstance(node, FN + (ast.ClassDef,) + COMP):
        inner = Scope(scope)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for d in node.decorator_list: visit(f, d, scope)
            if isinstance(node, ast.ClassDef):
                for b in (*node.bases, *node.keywords): visit(f, b if not isinstance(b, ast.keyword) else b.value, scope)
            else:
                a = node.args
                for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []), *([a.kwarg] if a.kwarg else [])):
                    if x.annotation: visit(f, x.annotation, scope)
                for d in (*a.defaults, *(k for k in a.kw_defaults if k)): visit(f, d, scope)
                if node.returns: visit(f, node.returns, scope)
        for name in bound_in(node):
            if not isinstance(node, ast.ClassDef): inner.names[name] = None
        body = getattr(node, "body", [])
        body = body if isinstance(body, list) else [body]
        if isinstance(node, COMP):
            for g in node.generators:
                visit(f, g.iter, inner); [visit(f, i, inner) for i in g.ifs]; visit(f, g.target, inner)
            for c in ([node.elt] if not isinstance(node, ast.DictComp) else [node.key, node.value]): visit(f, c, inner)
            return
        if isinstance(node, ast.Lambda):
            for d in (*node.args.defaults, *(k for k in node.args.kw_defaults if k)): visit(f, d, scope)
        for n in own(node) if not isinstance(node, ast.Lambda) else []:
            if isinstance(n, (ast.Import, ast.ImportFrom)): do_import(f, n, inner)
        for st in body: visit(f, st, inner if not isinstance(node, ast.ClassDef) else inner)
        return
    for c in ast.iter_child_nodes(node): visit(f, c, scope)
ANN = re.compile(r"[A-Za-z_][\w.]*")
def visit_strings(f, scope):
    """string annotations and forward references"""
    for n in ast.walk(TREE[f]):
        anns = []
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)):
            a = n.args
            anns = [x.annotation for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []), *([a.kwarg] if a.kwarg else []))] + [n.returns]
        elif isinstance(n, ast.AnnAssign): anns = [n.annotation]
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "cast": anns = n.args[:1]
        elif isinstance(n, ast.Subscript) : anns = [n.slice]
        for an in anns:
            if an is None: continue
            for c in ast.walk(an):
                if isinstance(c, ast.Constant) and isinstance(c.value, str) and c.lineno == c.end_lineno:
                    raw = TEXT[f].encode()[off(f, c.lineno, c.col_offset):off(f, c.end_lineno, c.end_col_offset)].decode()
                    for m in ANN.finditer(raw):
                        parts = m.group(0).split(".")
                        t = scope.get(parts[0])
                        if t and t[0] == "sym" and len(parts) == 1 and (t[1], t[2]) in top:
                            edit(f, off(f, c.lineno, c.col_offset) + len(raw[:m.start()].encode()), parts[0], top[t[1], t[2]])
                        elif t and t[0] == "mod" and len(parts) == 2:
                            r = resolve(t[1], parts[1])
                            if r and r[0] == "sym" and (r[1], r[2]) in top:
                                edit(f, off(f, c.lineno, c.col_offset) + len(raw[:m.start()].encode()) + len(parts[0]) + 1, parts[1], top[r[1], r[2]])
for f in FILES:
    mod = modname(f); scope = Scope()
    for n in ast.walk(TREE[f]):
        pass
    for n in TREE[f].body: 
        for x in ast.walk(n):
            if isinstance(x, (ast.Import, ast.ImportFrom)): pass
    # module-level imports (also inside if TYPE_CHECKING / try)
    def level(nodes):
        for n in nodes:
            if isinstance(n, (ast.Import, ast.ImportFrom)): do_import(f, n, scope)
            elif isinstance(n, (ast.If, ast.Try, ast.With)):
                level(n.body); level(getattr(n, "orelse", []))
    level(TREE[f].body)
    if mod in MODS and f.split("/")[0] in PK:
        for full in [d for d in defs if d.rpartition(".")[0] == mod]: scope.names[full.rpartition(".")[2]] = ("sym", mod, full.rpartition(".")[2])
    for n in TREE[f].body: visit(f, n, scope)
    visit_strings(f, scope)
    # definitions
    for n in TREE[f].body:
        for c in ([n] + (n.body + n.orelse if isinstance(n, ast.If) else [])):
            if isinstance(c, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and (mod, c.name) in top:
                line = TEXT[f].split("\n")[c.lineno - 1]; p = re.search(rf"(def|class)\s+{c.name}\b", line)
                edit(f, off(f, c.lineno, len(line[:p.end()].encode()) - len(c.name)), c.name, top[mod, c.name])
    # __all__ and COMMAND-like strings "pkg.mod:name"
    for n in ast.walk(TREE[f]):
        if isinstance(n, ast.Constant) and isinstance(n.value, str):
            m = re.fullmatch(r"((?:triform|triform_lectures|little_world)[\w.]*)[:.](\w+)", n.value)
            if m:
                r = resolve(m[1], m[2])
                if r and r[0] == "sym" and (r[1], r[2]) in top:
                    edit(f, off(f, n.lineno, n.col_offset) + 1 + len(m[1]) + 1, m[2], top[r[1], r[2]])
        if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in n.targets):
            for c in ast.walk(n.value):
                if isinstance(c, ast.Constant) and isinstance(c.value, str):
                    r = resolve(mod, c.value)
                    if r and r[0] == "sym" and (r[1], r[2]) in top: edit(f, off(f, c.lineno, c.col_offset) + 1, c.value, top[r[1], r[2]])
# parameters: definitions and uses in bodies
def rename_param(f, fn, old, new):
    a = fn.args
    for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []), *([a.kwarg] if a.kwarg else [])):
        if x.arg == old: edit(f, off(f, x.lineno, x.col_offset), old, new)
    def walk(n, shadow):
        for c in ast.iter_child_nodes(n):
            if isinstance(c, ast.Name) and c.id == old and not shadow: edit(f, off(f, c.lineno, c.col_offset), old, new)
            if isinstance(c, FN + COMP) and old in bound_in(c):
                if isinstance(c, COMP): walk(c, True)
                continue
            walk(c, shadow)
    for st in (fn.body if isinstance(fn.body, list) else [fn.body]): walk_root = ast.Module(body=[st], type_ignores=[]); walk(walk_root, False)
    doc = ast.get_docstring(fn, clean=False)
    if doc and f"`{old}`" in doc:
        s = off(f, fn.body[0].lineno, fn.body[0].col_offset); e = off(f, fn.body[0].end_lineno, fn.body[0].end_col_offset)
        for m in re.finditer(rb"`" + old.encode() + rb"`", TEXT[f].encode()[s:e]): edits[f][(s + m.start() + 1, s + m.start() + 1 + len(old.encode()))] = new
for (full, old), new in params.items():
    mod, name = full.rpartition(".")[::2]
    if full in defs: rename_param(MODS[mod], defs[full], old, new)
    else:
        cls = defs[mod]; m2 = mod.rpartition(".")[0]
        for x in cls.body:
            if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef)) and x.name == name: rename_param(MODS[m2], x, old, new)

# ---------- part B: members, by types
if members or any(full.rpartition(".")[0] in defs for full, _ in params):
    from mypy import build, options as mo, nodes, types as mt
    from mypy.find_sources import create_source_list
    o = mo.Options(); o.python_version = (3, 11); o.check_untyped_defs = True; o.incremental = False; o.export_types = True; o.preserve_asts = True
    o.ignore_missing_imports = True; o.namespace_packages = True; o.explicit_package_bases = True; o.mypy_path = [str(ROOT)]; o.fast_module_lookup = True
    o.python_executable = sys.executable; o.show_traceback = False; o.allow_redefinition = True
    srcs = [build.BuildSource(f, modname(f), None) for f in FILES]
    res = build.build(srcs, o)
    T = res.types
    from mypy.traverser import TraverserVisitor
    def infos(t):
        t = mt.get_proper_type(t)
        if isinstance(t, mt.Instance): return [t.type]
        if isinstance(t, mt.UnionType): return [i for x in t.items for i in infos(x)]
        if isinstance(t, mt.TupleType): return [t.partial_fallback.type]
        if isinstance(t, mt.TypeType): return infos(t.item)
        if isinstance(t, mt.TypeVarType): return infos(t.upper_bound)
        if isinstance(t, mt.CallableType) and t.is_type_obj(): return infos(t.ret_type)
        if isinstance(t, mt.Overloaded) and t.is_type_obj(): return infos(t.items[0].ret_type)
        if isinstance(t, mt.NoneType): return []
        return [None]
    names = {n for _, n in members}
    def home(info, name):
        """the first class of the map that this member belongs to (own, inherited, or overridden)"""
        for base in info.mro:
            if (base.fullname, name) in members: return members[base.fullname, name]
        return None
    unresolved = defaultdict(list)
    class V(TraverserVisitor):
        def __init__(self, f): self.f = f
        def member(self, e, infolist, name, pos):
            news = {home(i, name) for i in infolist if i is not None}
            if None in infolist and not (news - {None}): unresolved[name].append((self.f, e.line)); return
            news -= {None}
            if len(news) == 1: edit(self.f, pos, name, news.pop())
            elif len(news) > 1: print("AMBIGUOUS", self.f, e.line, name, news)
        def visit_member_expr(self, e):
            if e.name in names and e.end_column is not None:
                t = T.get(e.expr)
                pos = off(self.f, e.end_line, 0) + len(TEXT[self.f].split("\n")[e.end_line - 1].encode()[:e.end_column]) - len(e.name.encode())
                if isinstance(e.expr, nodes.RefExpr) and isinstance(e.expr.node, nodes.TypeInfo): self.member(e, [e.expr.node], e.name, pos)
                elif isinstance(e.expr, nodes.RefExpr) and isinstance(e.expr.node, nodes.MypyFile): pass
                elif t is not None: self.member(e, infos(t), e.name, pos)
                else: unresolved[e.name].append((self.f, e.line))
            super().visit_member_expr(e)
        def visit_call_expr(self, e):
            kw = [(n, a) for n, a in zip(e.arg_names, e.args) if n]
            if kw:
                cal = e.callee; full = None
                if isinstance(cal, nodes.RefExpr) and cal.fullname: full = cal.fullname
                cands = []
                if isinstance(cal, nodes.MemberExpr):
                    t = T.get(cal.expr)
                    if isinstance(cal.expr, nodes.RefExpr) and isinstance(cal.expr.node, nodes.TypeInfo): cands = [cal.expr.node]
                    elif t is not None: cands = [i for i in infos(t) if i]
                for n, a in kw:
                    new = None
                    for i in cands:
                        for b in i.mro:
                            new = new or params.get((f"{b.fullname}.{cal.name}", n))
                    ct = mt.get_proper_type(T.get(cal)) if T.get(cal) else None
                    if new is None and ct is not None:
                        for i in infos(ct):
                            if i is not None and isinstance(ct, (mt.CallableType, mt.Overloaded)) and ct.is_type_obj():
                                new = new or home(i, n) or params.get((f"{i.fullname}.__init__", n))
                    if new: KW[self.f].setdefault((a.line, a.column), []).append((n, new))
            super().visit_call_expr(e)
    KW = defaultdict(dict)
    for st in res.graph.values():
        if st.tree is None: continue
        p = st.path and os.path.relpath(st.path, ROOT)
        if p in TEXT: st.tree.accept(V(p))
    for f, kws in KW.items():
        for n in ast.walk(TREE[f]):
            if isinstance(n, ast.keyword) and n.arg:
                for old, new in kws.get((n.value.lineno, n.value.col_offset), []):
                    if n.arg == old: edit(f, off(f, n.lineno, n.col_offset), old, new)
    # definitions of members, in the class itself and in subclasses that override them
    byname = {}
    for st in res.graph.values():
        if st.tree is None: continue
        p = st.path and os.path.relpath(st.path, ROOT)
        if p not in TEXT: continue
        lines = TEXT[p].split("\n")
        for n in ast.walk(TREE[p]):
            if not isinstance(n, ast.ClassDef): continue
            info = None
            sym = st.tree.names.get(n.name)
            info = sym.node if sym and isinstance(sym.node, nodes.TypeInfo) else None
            for x in n.body:
                if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef)) and x.name in names and info is not None and (new := home(info, x.name)):
                    q = re.search(rf"def\s+{x.name}\b", lines[x.lineno - 1]); edit(p, off(p, x.lineno, len(lines[x.lineno - 1][:q.end()].encode()) - len(x.name)), x.name, new)
                t = x.target if isinstance(x, ast.AnnAssign) else x.targets[0] if isinstance(x, ast.Assign) and len(x.targets) == 1 else None
                if isinstance(t, ast.Name) and t.id in names and info is not None and (new := home(info, t.id)):
                    edit(p, off(p, t.lineno, t.col_offset), t.id, new)
            # class-pattern keywords and msgspec/NamedTuple fields used inside the class body by bare name are not members
            # inherited parameters
            if info is not None:
                for x in n.body:
                    if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef)):
                        for b in info.mro[1:]:
                            for (full, old), new in params.items():
                                if full == f"{b.fullname}.{x.name}": rename_param(p, x, old, new)
    for name, places in unresolved.items():
        print("UNRESOLVED", name, len(places), *[f"{f}:{l}" for f, l in places[:8]])
for f, es in edits.items():
    b = TEXT[f].encode()
    for (s, e), new in sorted(es.items(), reverse=True): b = b[:s] + new.encode() + b[e:]
    Path(f).write_bytes(b)
print("edited", len(edits), "files,", sum(map(len, edits.values())), "places")
# prose: `old` in backquotes in docs and docstrings of package for renamed top-level names that are distinctive
