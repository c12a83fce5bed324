"""Rules for the source of the package: no import circles, and no wide comments."""

import ast
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "crates/python/python"
WIDTH = 100


def imports(path, modules):
    """The files of the package that the module at `path` imports when it is loaded, and the
    lines."""
    package = module_name(path)
    if path.name != "__init__.py":
        package = package.rpartition(".")[0]
    found = {}
    for node in loaded(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            parents = package.split(".")[: 1 - node.level or None] if node.level else []
            base = ".".join(parents + [node.module] if node.module else parents)
            # `from package import name` imports a module or a name of the package.
            targets = [f"{base}.{alias.name}" for alias in node.names]
            targets = [target if target in modules else base for target in targets]
        for target in targets:
            if target in modules and modules[target] != path:
                found.setdefault(modules[target], node.lineno)
    return found


def loaded(tree):
    """The imports that run when a module is loaded: not those in functions or for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from loaded(node)


def module_name(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def circles(graph):
    """The imports that are part of a circle."""

    def reachable(start):
        seen, todo = set(), [start]
        while todo:
            new = set(graph[todo.pop()]) - seen
            seen |= new
            todo += new
        return seen

    reached = {path: reachable(path) for path in graph}
    pairs = [(path, line, to) for path in graph for to, line in graph[path].items()]
    return [(path, line, to) for path, line, to in pairs if path in reached[to]]


def wide_comments(source):
    """The numbers of the lines with comments or docstrings that are too wide."""
    lines = source.splitlines()
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    # Directives for tools stay beside their code.
    directives = ("# noqa", "# type:")
    comments = [token for token in tokens if token.type == tokenize.COMMENT]
    text = {one.start[0] for one in comments if not one.string.startswith(directives)}
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            text |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))

    def is_wide(line):
        is_table = line.lstrip(" #").startswith("|")
        return len(line) > WIDTH and "://" not in line and not is_table

    return sorted(at for at in text if is_wide(lines[at - 1]))


def is_source(path):
    return path.suffix in (".py", ".pyi")


def name(path):
    return path.relative_to(ROOT)


def test_no_modules_import_each_other():
    # `_core.pyi` describes the module in Rust.
    modules = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py*")) if is_source(path)}
    found = circles({path: imports(path, modules) for path in modules.values()})
    lines = [f"{name(path)}:{line} imports {name(to)}" for path, line, to in found]
    assert not lines, "modules that import each other:\n" + "\n".join(lines)


def test_circles_are_found():
    # a -> b -> c -> b
    assert circles({"a": {"b": 1}, "b": {"c": 2}, "c": {"b": 3}}) == [("b", 2, "c"), ("c", 3, "b")]
    assert circles({"a": {"b": 1}, "b": {}}) == []


def test_comments_wrap_at_100_columns():
    folders = [ROOT / name for name in ("benchmarks", "crates", "examples")]
    paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    wide = [f"{name(path)}:{line}" for path in paths for line in wide_comments(path.read_text())]
    assert not wide, "comments of more than 100 columns:\n" + "\n".join(wide)


def test_wide_comments_are_found():
    # 103, 100, 101 and 102 columns.
    docstring, fits, wide, behind = '"' * 3 + "x" * 97 + '"' * 3, "# " + "x" * 98, "# " + "x" * 99, "a = 1  # " + "x" * 93
    code = "value = '" + "x" * 100 + "'"
    assert wide_comments("\n".join([docstring, code, fits, wide, behind])) == [1, 4, 5]
