"""A class name has one meaning in `src/`, and no module or package is named by a gerund; what is left of both may only shrink."""

from pathlib import Path

import pytest
from tests.style.names import Accepted, compare, find_breaches, find_gerund_modules, find_repeated_classes, read_allowed

ACCEPTED = Accepted(wire_modules=["src/pkg/wire/messages.py"], nouns=["finding"], modules=["listing_messages"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "src" / "pkg" / "wire").mkdir(parents=True)
    return tmp_path


def write(root: Path, path: str, text: str = "") -> None:
    file = root / "src" / "pkg" / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, "utf-8")


def test_the_source_has_exactly_the_breaches_that_are_written_down() -> None:
    new, gone = compare(find_breaches(), read_allowed())
    assert new == [], "see `python -m tests.style.names`"
    assert gone == [], "fewer breaches, good; write that down: `python -m tests.style.names --write`"


def test_a_class_name_in_two_modules_is_found(root: Path) -> None:
    write(root, "a.py", "class Refused(Exception): ...\n")
    write(root, "b.py", "def f() -> None:\n    class Refused: ...\n")
    assert find_repeated_classes(root, ACCEPTED) == {"Refused": ["src/pkg/a.py", "src/pkg/b.py"]}


def test_a_class_name_twice_in_one_module_is_found(root: Path) -> None:
    write(root, "a.py", "def f():\n    class Local: ...\ndef g():\n    class Local: ...\n")
    assert list(find_repeated_classes(root, ACCEPTED)) == ["Local"]


def test_wire_types_and_classes_of_other_classes_do_not_count(root: Path) -> None:
    write(root, "a.py", "class Limits: ...\nclass List:\n    class Left: ...\n")
    write(root, "b.py", "class Tree:\n    class Left: ...\n")
    write(root, "wire/messages.py", "class Limits: ...\n")
    assert find_repeated_classes(root, ACCEPTED) == {}


def test_gerunds_are_found_in_modules_packages_and_parts_of_names(root: Path) -> None:
    for path in ("reading.py", "settingup/a.py", "storing/__init__.py", "judging_files.py", "letting_go.py"):
        write(root, path)
    assert find_gerund_modules(root, ACCEPTED) == [
        "src/pkg/judging_files.py",
        "src/pkg/letting_go.py",
        "src/pkg/reading.py",
        "src/pkg/storing",
    ]


def test_nouns_that_end_alike_are_accepted(root: Path) -> None:
    for path in ("finding.py", "listing_messages.py", "settings.py", "strings.py", "single.py"):
        write(root, path)
    assert find_gerund_modules(root, ACCEPTED) == []


def test_the_list_may_only_shrink() -> None:
    allowed = ["class\tRefused\t3", "class\tEnded\t2", "module\tsrc/a/asking.py"]
    assert compare(["class\tRefused\t2", "module\tsrc/a/asking.py"], allowed) == ([], ["class\tRefused\t3", "class\tEnded\t2"])
    assert compare(["class\tRefused\t4", *allowed[1:]], allowed) == (["class\tRefused\t4"], ["class\tRefused\t3"])
    assert compare([*allowed, "module\tsrc/b/asking.py"], allowed) == (["module\tsrc/b/asking.py"], [])
