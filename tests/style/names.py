"""Checks names over the syntax tree of `src/`: a class name has one meaning, and no module or package is named by a gerund.

What breaks a rule today is in `names_allowed.tsv`, which may only shrink.

    python -m tests.style.names           # fails on a new breach, and on one that is gone and still written down
    python -m tests.style.names --write   # writes the shorter list down
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).with_name("names.toml")
ALLOWED = Path(__file__).with_name("names_allowed.tsv")


class Accepted(NamedTuple):
    """The contents of `names.toml`."""

    wire_modules: list[str]
    nouns: list[str]
    modules: list[str]


def load_accepted() -> Accepted:
    return Accepted(**tomllib.loads(DATA.read_text("utf-8")))


def find_repeated_classes(root: Path, accepted: Accepted) -> dict[str, list[str]]:
    """Returns the class names that more than one module defines, with those modules. Wire modules do not count.

    A class inside a class is named with it (`Composer.Submitted`); one inside a function counts like any other.
    """
    wire = {path for pattern in accepted.wire_modules for path in root.glob(pattern)}
    defined: dict[str, list[str]] = {}
    for path in sorted((root / "src").rglob("*.py")):
        if path not in wire:
            for name in _list_classes(ast.parse(path.read_bytes())):
                defined.setdefault(name, []).append(path.relative_to(root).as_posix())
    return {name: paths for name, paths in sorted(defined.items()) if len(paths) > 1}


def _list_classes(node: ast.AST, outer: str = "") -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield f"{outer}{child.name}"
            yield from _list_classes(child, f"{outer}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.If | ast.Try | ast.With):
            yield from _list_classes(child, outer)


def find_gerund_modules(root: Path, accepted: Accepted) -> list[str]:
    """Returns the modules and packages whose name, or a part of it, ends in -ing without being a noun of the list."""
    names = {path.parent if path.name == "__init__.py" else path for path in (root / "src").rglob("*.py")}
    names |= {parent for path in names for parent in path.parents if root / "src" in parent.parents}
    return sorted(path.relative_to(root).as_posix() for path in names if _is_gerund(path.stem, accepted))


def _is_gerund(name: str, accepted: Accepted) -> bool:
    if name in accepted.modules:
        return False
    return any(part.endswith("ing") and part not in accepted.nouns for part in name.split("_"))


def find_breaches(root: Path = ROOT) -> list[str]:
    """Returns one line for each breach: `class NAME COUNT` or `module PATH`, separated by tabs."""
    accepted = load_accepted()
    classes = (f"class\t{name}\t{len(paths)}" for name, paths in find_repeated_classes(root, accepted).items())
    return [*classes, *(f"module\t{path}" for path in find_gerund_modules(root, accepted))]


def compare(found: list[str], allowed: list[str]) -> tuple[list[str], list[str]]:
    """Returns the new breaches and the lines that no longer hold. A class name with fewer definitions than before is not new."""
    counts = _count_definitions(allowed)
    new = [line for line in found if line not in allowed and not _has_fallen(line, counts)]
    return new, [line for line in allowed if line not in found]


def _count_definitions(lines: list[str]) -> dict[str, int]:
    rows = (line.split("\t") for line in lines if line.startswith("class\t"))
    return {name: int(count) for _, name, count in rows}


def _has_fallen(line: str, counts: dict[str, int]) -> bool:
    kind, name, *count = line.split("\t")
    return kind == "class" and int(count[0]) < counts.get(name, 0)


def read_allowed(path: Path = ALLOWED) -> list[str]:
    return path.read_text("utf-8").splitlines()


def main(arguments: list[str]) -> int:
    found = find_breaches()
    new, gone = compare(found, read_allowed() if ALLOWED.exists() else found)
    repeated = find_repeated_classes(ROOT, load_accepted())
    for line in new:
        kind, name, *_ = line.split("\t")
        print(
            f"{name}: rename it, the name is a gerund" if kind == "module" else f"{name}: defined in {', '.join(repeated[name])}"
        )
    if new:
        return 1
    if arguments == ["--write"]:
        ALLOWED.write_text("".join(f"{line}\n" for line in found), "utf-8")
        return 0
    if gone:
        print(f"{len(gone)} breaches are gone. Run: python -m tests.style.names --write")
        return 1
    print(f"Names: {len(found)} breaches, as allowed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
