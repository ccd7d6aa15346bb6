"""`tower host`: which hub it dials, what it says of it, and the token that the hub knows it by."""

import json
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand, read_line_with
from tests.cli.terminal import TerminalDriver

from switchtower import config
from switchtower.cli.commands import serve


@pytest.fixture
def hub() -> Iterator[TowerCommand]:
    tower = TowerCommand()
    tower.environment["TOWER_NEW_HOSTS"] = "trust"
    assert tower("sessions").code == 0  # starts it
    yield tower
    tower.remove()


@pytest.fixture
def unused_address() -> Iterator[str]:
    """An address at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def wait_for_exit(process: Any) -> int:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    code: int = process.returncode
    return code


def test_without_a_hub_it_says_how_to_name_one(tower_command: TowerCommand) -> None:
    told = tower_command("host")

    assert told.code == 64
    assert "no hub is named" in told.stderr
    for remedy in ("--hub", "SERVER_BASE_URL", "the setting `hub`"):
        assert remedy in told.stderr
    assert not (tower_command.home / "run").exists(), "nothing was started"


@pytest.mark.parametrize("address", ["hub.example", "ftp://hub.example", "http://"])
def test_an_address_that_is_no_hub_s_is_refused(tower_command: TowerCommand, address: str) -> None:
    flag, variable = tower_command("host", "--hub", address), tower_command("host", SERVER_BASE_URL=address)

    assert (flag.code, variable.code) == (64, 1)
    assert "is not a hub's address" in flag.stderr
    assert "is not a hub's address" in variable.stderr


def test_it_says_where_it_dials_and_when_it_is_connected(tower_command: TowerCommand, hub: TowerCommand) -> None:
    del tower_command.environment["TOWER_HTTP"], tower_command.environment["TOWER_PI"]
    process = tower_command.start("host", "--hub", hub.endpoints["http"], "--name", "builder")
    read_line_with(process, hub.endpoints["http"])
    read_line_with(process, "linked to the hub")

    assert (tower_command.endpoints["http"], tower_command.endpoints["pi"]) == (None, None)
    assert "builder" in [known["name"] for known in hub("hosts", "list", "--json").json]
    assert wait_for_exit(process) == 0


def test_a_program_of_a_host_is_come_back_to_from_the_hub(tower_command: TowerCommand, hub: TowerCommand) -> None:
    (tower_command.folder / "poem.txt").write_text("".join(f"line {number}\n" for number in range(1, 500)))
    process = tower_command.start("host", "--hub", hub.endpoints["http"])
    read_line_with(process, "linked to the hub")
    session_id = tower_command("exec", "--detach", "--", "less", "poem.txt").stdout.decode().strip()
    # The hub is told at once, which still takes its time.
    assert any(session_id in hub("sessions").stdout.decode() for _ in range(100))

    terminal = TerminalDriver(hub, "attach", session_id, size=(60, 12))
    terminal.wait_for("line 11")
    terminal.press(b"300g")
    terminal.wait_for("line 310")
    terminal.press(b"q")

    assert terminal.end() == 0, terminal.shown
    assert wait_for_exit(process) == 0


def test_it_says_once_that_the_hub_cannot_be_reached_and_goes_on(tower_command: TowerCommand, unused_address: str) -> None:
    process = tower_command.start("host", "--hub", unused_address)
    read_line_with(process, "the hub cannot be reached")

    assert tower_command("status").code == 0
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"cannot be reached" not in rest


def test_a_hub_that_refuses_is_said_to(tower_command: TowerCommand, hub: TowerCommand) -> None:
    first = tower_command.start("host", "--hub", hub.endpoints["http"])
    read_line_with(first, "linked to the hub")
    assert wait_for_exit(first) == 0
    assert tower_command("host", "--rotate-token").code == 0

    again = tower_command.start("host", "--hub", hub.endpoints["http"])
    read_line_with(again, "the hub refuses this host")

    assert wait_for_exit(again) == 0


def test_a_rotated_token_is_new_and_is_told_to_nobody(tower_command: TowerCommand) -> None:
    def kept() -> dict[str, str]:
        identity: dict[str, str] = json.loads((tower_command.home / "data" / "host.json").read_text())
        return identity

    first = tower_command("host", "--rotate-token")
    before = kept()
    second = tower_command("host", "--rotate-token")
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
    settings = serve._load_settings(flags, {"TOWER_HOME": str(tmp_path), **environ})

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
    settings = serve._load_settings(flags, {"TOWER_HOME": str(tmp_path), **environ})

    assert (settings.http, settings.pi) == (http, pi)
