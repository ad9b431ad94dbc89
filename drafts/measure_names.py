"""measure_names.py ROOT: figures about names in triform/."""
import ast, sys, subprocess, collections, re
root=sys.argv[1] if len(sys.argv)>1 else "."
files=[f for f in subprocess.run(["git","ls-files","triform/*.py"],cwd=root,capture_output=True,text=True).stdout.split()]
classes=collections.defaultdict(list); funcs=[]; lines=0
for f in files:
    t=open(f"{root}/{f}").read(); lines+=t.count("\n"); tr=ast.parse(t)
    for n in ast.walk(tr):
        if isinstance(n,ast.ClassDef): classes[n.name].append(f)
        if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef)):
            deco=[ast.unparse(d) for d in n.decorator_list]
            if n.name.startswith("__") or any("property" in d or "overload" in d or "setter" in d for d in deco): continue
            funcs.append((n.name.lstrip("_"),f,n.lineno))
print("lines",lines,"files",len(files),"functions",len(funcs),"classes",len(classes))
twice={k:v for k,v in classes.items() if len(v)>1}; print("class names defined twice:",len(twice)); 
if "-v" in sys.argv:
    for k,v in sorted(twice.items()): print("  ",k,v)
names=collections.Counter(n for n,_,_ in funcs); print("one word:",sum("_" not in n for n,_,_ in funcs)/len(funcs))
