"""How plugins are found, and what becomes of those that are broken."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.extensions.parts import GREET, Install

from switchtower.extensions.loader import SHIPPED, ExtensionLoader, LoadedExtensions, to_one_line


def test_ours_are_there_without_anybody_installing_anything() -> None:
    loaded = ExtensionLoader().load()

    assert {"brief", "review"} <= loaded.offers.keys()
    assert {name: loaded.offers[name].path for name in SHIPPED} == SHIPPED
    assert loaded.broken == ()


def test_a_plugin_is_found_by_its_entry_point(install: Install) -> None:
    value = install(GREET)

    offer = ExtensionLoader().load().offers["greet"]

    assert (offer.extension, offer.path, offer.command.description) == ("greet", value, "Greets somebody")


def test_an_entry_point_may_also_make_the_extension(install: Install) -> None:
    install(GREET + "\n    def make():\n        return EXTENSION\n", attribute="make")

    assert "greet" in ExtensionLoader().load().offers


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("def (", "SyntaxError: invalid syntax"),
        ("raise SystemExit('bye')", "SystemExit: bye"),
        ("x = 1", "has no attribute 'EXTENSION'"),
        ("EXTENSION = 7", "it is a int, not an `Extension`"),
        ("def EXTENSION(): raise ValueError('no\\nluck')", "ValueError: no luck"),
        ("from switchtower.extensions import port\nEXTENSION = port.Extension('G r', '', ())", "'G r' is not a name"),
        ("from switchtower.extensions import port\nEXTENSION = port.Extension('g', '', (7,))", "is no `Command`"),
        (
            "from switchtower.extensions.port import *\nEXTENSION = Extension('g', '', (ExtensionCommand('../x', '', print),))",
            "'../x' is not a name for a command",
        ),
        (
            "from switchtower.extensions.port import *\nEXTENSION = Extension('g', '', (ExtensionCommand('x', '', 'run'),))",
            "is no `Command`",
        ),
    ],
)
def test_a_broken_plugin_is_reported_and_the_others_are_there(
    install: Install, caplog: pytest.LogCaptureFixture, source: str, reason: str
) -> None:
    value = install(source, name="bad")
    install(GREET)

    with caplog.at_level(logging.WARNING):
        loaded = ExtensionLoader().load()

    [broken] = loaded.broken
    assert (broken.name, broken.path) == ("bad", value)
    assert reason in broken.reason
    assert "\n" not in broken.reason
    assert "the extension bad" in caplog.text
    assert {"greet", "brief", "review"} <= loaded.offers.keys()


def test_a_name_that_is_taken_stays_with_who_had_it_first(install: Install) -> None:
    install(GREET.replace('"greet"', '"review"'), name="mine")

    loaded = ExtensionLoader().load()

    assert loaded.offers["review"].path == SHIPPED["review"]
    assert [broken.reason for broken in loaded.broken] == ["`/review` is taken by the extension `review`"]


def test_nothing_is_loaded_before_somebody_wants_a_command_and_then_once(install: Install) -> None:
    value = install(GREET)
    loader = ExtensionLoader()
    assert value.partition(":")[0] not in sys.modules

    first = loader.load()

    assert value.partition(":")[0] in sys.modules
    assert loader.load().offers["greet"].command is first.offers["greet"].command


def test_a_plugin_that_never_comes_back_holds_up_neither_ours_nor_those_before_it(install: Install, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    install(f"open({str(gate)!r}).read()\nEXTENSION = None", name="hanging")
    install(GREET)
    loader = ExtensionLoader(timeout=0)

    meanwhile = wait_until(loader, lambda loaded: any(broken.name == "hanging" for broken in loaded.broken))

    assert {"brief", "review", "greet"} <= meanwhile.offers.keys()
    assert [(broken.name, broken.reason) for broken in meanwhile.broken] == [("hanging", "it is still being loaded")]
    gate.write_text("")
    later = wait_until(loader, lambda loaded: loaded != meanwhile and loaded.broken != ())
    assert [broken.reason for broken in later.broken] == ["it is a NoneType, not an `Extension`"]


def wait_until(loader: ExtensionLoader, condition: Callable[[LoadedExtensions], bool]) -> LoadedExtensions:
    deadline = time.monotonic() + 10
    while not condition(loaded := loader.load()):
        assert time.monotonic() < deadline, loaded
        os.sched_yield()
    return loaded


def test_what_a_stranger_says_of_itself_is_one_short_line() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert to_one_line("a\n  b\tc\x1b[31m") == "a b c?[31m"
    assert len(to_one_line("x" * 10_000)) == 200
    assert to_one_line(Mute()) == "it cannot say what it is"


def test_knowing_the_port_loads_nothing_heavy() -> None:
    heavy = ("pydantic", "switchtower.tools", "switchtower.models", "switchtower.engines")
    code = (
        "import sys; from switchtower.extensions import loader, port, ui, brief, review; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert finished.stdout.strip() == "[]"
