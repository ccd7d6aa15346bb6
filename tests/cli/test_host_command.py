"""`tower host`: which hub it dials, what it says of it, and the token that the hub knows it by."""

import json
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.conftest import Tower, line_with
from tests.cli.terminal import Terminal

from switchtower import config
from switchtower.cli.commands import host


@pytest.fixture
def hub() -> Iterator[Tower]:
    tower = Tower()
    tower.environment["TOWER_NEW_HOSTS"] = "trust"
    assert tower("sessions").code == 0  # starts it
    yield tower
    tower.remove()


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def ended(process: Any) -> int:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    code: int = process.returncode
    return code


def test_without_a_hub_it_says_how_to_name_one(tower: Tower) -> None:
    told = tower("host")

    assert told.code == 64
    assert "no hub is named" in told.stderr
    for remedy in ("--hub", "SERVER_BASE_URL", "the setting `hub`"):
        assert remedy in told.stderr
    assert not (tower.home / "run").exists(), "nothing was started"


@pytest.mark.parametrize("address", ["hub.example", "ftp://hub.example", "http://"])
def test_an_address_that_is_no_hub_s_is_refused(tower: Tower, address: str) -> None:
    flag, variable = tower("host", "--hub", address), tower("host", SERVER_BASE_URL=address)

    assert (flag.code, variable.code) == (64, 1)
    assert "is not a hub's address" in flag.stderr
    assert "is not a hub's address" in variable.stderr


def test_it_says_where_it_dials_and_when_it_is_connected(tower: Tower, hub: Tower) -> None:
    del tower.environment["TOWER_HTTP"], tower.environment["TOWER_PI"]
    process = tower.start("host", "--hub", hub.endpoints["http"], "--name", "builder")
    line_with(process, hub.endpoints["http"])
    line_with(process, "linked to the hub")

    assert (tower.endpoints["http"], tower.endpoints["pi"]) == (None, None)
    assert "builder" in [known["name"] for known in hub("hosts", "list", "--json").json]
    assert ended(process) == 0


def test_a_program_of_a_host_is_come_back_to_from_the_hub(tower: Tower, hub: Tower) -> None:
    (tower.folder / "poem.txt").write_text("".join(f"line {number}\n" for number in range(1, 500)))
    process = tower.start("host", "--hub", hub.endpoints["http"])
    line_with(process, "linked to the hub")
    session_id = tower("exec", "--detach", "--", "less", "poem.txt").stdout.decode().strip()
    # The hub is told at once, which still takes its time.
    assert any(session_id in hub("sessions").stdout.decode() for _ in range(100))

    terminal = Terminal(hub, "attach", session_id, size=(60, 12))
    terminal.until("line 11")
    terminal.press(b"300g")
    terminal.until("line 310")
    terminal.press(b"q")

    assert terminal.end() == 0, terminal.shown
    assert ended(process) == 0


def test_it_says_once_that_the_hub_cannot_be_reached_and_goes_on(tower: Tower, nobody: str) -> None:
    process = tower.start("host", "--hub", nobody)
    line_with(process, "the hub cannot be reached")

    assert tower("status").code == 0
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"cannot be reached" not in rest


def test_a_hub_that_refuses_is_said_to(tower: Tower, hub: Tower) -> None:
    first = tower.start("host", "--hub", hub.endpoints["http"])
    line_with(first, "linked to the hub")
    assert ended(first) == 0
    assert tower("host", "--rotate-token").code == 0

    again = tower.start("host", "--hub", hub.endpoints["http"])
    line_with(again, "the hub refuses this host")

    assert ended(again) == 0


def test_a_rotated_token_is_new_and_is_told_to_nobody(tower: Tower) -> None:
    def kept() -> dict[str, str]:
        identity: dict[str, str] = json.loads((tower.home / "data" / "host.json").read_text())
        return identity

    first = tower("host", "--rotate-token")
    before = kept()
    second = tower("host", "--rotate-token")
    after = kept()

    assert (first.code, second.code) == (0, 0)
    assert before["host_id"] == after["host_id"]
    assert before["host_token"] != after["host_token"]
    assert f"tower hosts rotate {after['host_id']}" in second.stderr
    for ended_ in (first, second):
        assert before["host_token"] not in ended_.stderr
        assert after["host_token"] not in ended_.stderr
        assert ended_.stdout == b""


@pytest.mark.parametrize(
    ("flags", "environ", "hub_"),
    [
        ({"hub": "https://flag.example"}, {"SERVER_BASE_URL": "https://relay.example"}, "https://flag.example"),
        ({}, {"SERVER_BASE_URL": "https://relay.example", "TOWER_HUB": "https://ours.example"}, "https://relay.example"),
        ({}, {"TOWER_HUB": "https://ours.example"}, "https://ours.example"),
        ({}, {"SERVER_BASE_URL": ""}, None),
    ],
)
def test_the_flag_goes_before_the_document_s_variable_and_that_before_the_settings(
    tmp_path: Any, flags: dict[str, str], environ: dict[str, str], hub_: str | None
) -> None:
    settings = host._settings(flags, {"TOWER_HOME": str(tmp_path), **environ})

    assert settings.hub == hub_


@pytest.mark.parametrize(
    ("flags", "environ", "http", "pi"),
    [
        ({}, {}, "off", "off"),
        ({"http": "127.0.0.1:0"}, {}, "127.0.0.1:0", "off"),
        ({}, {"PI_SERVER_PORT": "4000"}, "off", "127.0.0.1:4000"),
        ({"http": config.Settings.http}, {}, config.Settings.http, "off"),
    ],
)
def test_http_and_pi_are_off_unless_they_are_asked_for(
    tmp_path: Any, flags: dict[str, str], environ: dict[str, str], http: str, pi: str
) -> None:
    settings = host._settings(flags, {"TOWER_HOME": str(tmp_path), **environ})

    assert (settings.http, settings.pi) == (http, pi)
