"""What each module of the repository imports, read from its source without running it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """`deferred`: inside a function, so it costs nothing until the call. `typing`: under TYPE_CHECKING."""

    module: str
    target: str
    line: int
    deferred: bool
    typing: bool

    @property
    def top(self) -> str:
        return self.target.partition(".")[0]

    @property
    def ours(self) -> bool:
        return self.top in OURS

    @property
    def third_party(self) -> bool:
        return not self.ours and self.top not in sys.stdlib_module_names

    def within(self, *packages: str) -> bool:
        return any(is_within(self.target, package) for package in packages)

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    name: str
    path: Path
    imports: tuple[Import, ...]


OURS = frozenset({"loomjobs", "jobs", "worker", "scheduler", "relay", "infra", "demo"})


def read_modules() -> dict[str, Module]:
    """Every module of our own, by its import name."""
    roots = (ROOT / "handlers", ROOT)
    sources = {_name(path, root): path for root in roots for ours in OURS for path in _sources(root / ours)}
    return {name: _read(name, path, sources.keys()) for name, path in sorted(sources.items())}


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _sources(place: Path) -> Iterator[Path]:
    """A package is a folder, a module a file beside it."""
    yield from place.rglob("*.py")
    if place.with_suffix(".py").exists():
        yield place.with_suffix(".py")


def _name(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def _read(name: str, path: Path, known: Iterable[str]) -> Module:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = _walk(ast.parse(path.read_text()), name=name, package=package, known=frozenset(known))
    return Module(name=name, path=path, imports=tuple(found))


def _walk(
    node: ast.AST,
    *,
    name: str,
    package: str,
    known: frozenset[str],
    deferred: bool = False,
    typing: bool = False,
) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        for target in _targets(child, package, known):
            yield Import(module=name, target=target, line=child.lineno, deferred=deferred, typing=typing)
        yield from _walk(
            child,
            name=name,
            package=package,
            known=known,
            deferred=deferred or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda),
            typing=typing or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)),
        )


def _targets(node: ast.AST, package: str, known: frozenset[str]) -> Iterator[str]:
    """`from p import a` imports the module p.a where there is one, else the module p."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = _absolute(node, package)
        yield from dict.fromkeys(f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in node.names)
    elif isinstance(node, ast.Call) and _is_import_call(node):
        yield node.args[0].value  # type: ignore[attr-defined]


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parents = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parents, *([node.module] if node.module else [])])


def _is_import_call(node: ast.Call) -> bool:
    """`import_module("literal")`; a computed name is read by nobody but the reviewer."""
    called = ast.unparse(node.func).rpartition(".")[2]
    literal = bool(node.args) and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
    return called in {"import_module", "__import__"} and literal
