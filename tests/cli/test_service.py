"""`tower service`: what is written for systemd and launchd, what they are told, and what is said where they are not there."""

import configparser
import os
import plistlib
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.inside import InProcessCommand

from switchtower import config
from switchtower.cli import system_service


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """The user's home folder."""
    folder = tmp_path / "user"
    folder.mkdir()
    return folder


@pytest.fixture
def in_process(
    tmp_path: Path, user: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> InProcessCommand:
    inside = InProcessCommand(tmp_path / "home", monkeypatch, capfdbinary, dict(os.environ))
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("PATH", "/usr/bin:relative:/bin:/usr/bin")
    return inside


@pytest.fixture
def systemctl(in_process: InProcessCommand, tmp_path: Path) -> Path:
    """In its place a program that writes down what it is told; the file's content is its exit code and words."""
    programs, told = tmp_path / "bin", tmp_path / "told"
    programs.mkdir()
    told.touch()
    program = programs / "systemctl"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {told}\n[ -e {told}.fails ] && {{ echo "No medium found" >&2; exit 1; }}\necho active\n'
    )
    program.chmod(0o755)
    in_process.monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return told


@pytest.fixture
def no_service_manager(in_process: InProcessCommand, tmp_path: Path) -> None:
    in_process.monkeypatch.setenv("PATH", str(tmp_path / "empty"))


def parse_unit(content: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(content)
    return parser


def test_print_shows_the_unit_and_writes_nothing(in_process: InProcessCommand, user: Path) -> None:
    ended = in_process("service", "install", "--manager", "systemd", "--print")

    assert (ended.code, ended.stderr) == (0, "")
    assert ended.text.startswith(f"# {user}/.config/systemd/user/switchtower.service\n")
    service = parse_unit(ended.text)["Service"]
    assert shlex.split(service["ExecStart"]) == [sys.executable, "-P", "-m", "switchtower", "serve"]
    assert 'Environment="PATH=/usr/bin:/bin"\n' in ended.text, "each folder once, and none that depends on where one is"
    assert f'Environment="TOWER_HOME={in_process.home}"\n' in ended.text
    assert service["EnvironmentFile"] == f"-{in_process.home}/service.env"
    assert service["UMask"] == "0077"
    assert service["LimitCORE"] == "0"
    assert parse_unit(ended.text)["Install"]["WantedBy"] == "default.target"
    assert list(user.iterdir()) == []
    assert not in_process.home.exists()


def test_with_socket_activation_systemd_listens(in_process: InProcessCommand) -> None:
    in_process.monkeypatch.setenv("TOWER_HOME", "/tmp/100%/home")

    ended = in_process("service", "install", "--manager", "systemd", "--socket-activation", "--print")

    service, socket = ended.text.split("/switchtower.socket\n")
    assert parse_unit(socket)["Socket"]["ListenStream"] == "/tmp/100%%/home/run/pushd.sock", "`%` is systemd's own"
    assert parse_unit(socket)["Socket"]["SocketMode"] == "0600"
    assert parse_unit(socket)["Socket"]["DirectoryMode"] == "0700"
    assert parse_unit(service)["Unit"]["Requires"] == "switchtower.socket"
    assert parse_unit(service)["Install"]["Also"].startswith("switchtower.socket")


def test_systemd_itself_finds_nothing_wrong(in_process: InProcessCommand, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze", path=os.defpath)
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    settings = config.load(environ={"TOWER_HOME": '/tmp/a "b\\$c %h'})
    for name, content in system_service.render_systemd_units(
        system_service.make_service_plan(settings, {"PATH": "/bin"}, socket_activation=True)
    ).items():
        (tmp_path / name).write_bytes(content)
    command = [analyze, "--user", "verify", tmp_path / system_service.SERVICE_UNIT, tmp_path / system_service.SOCKET_UNIT]
    ended = subprocess.run(command, env={"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}, capture_output=True, text=True)

    about_ours = [line for line in ended.stderr.splitlines() if "switchtower" in line]
    if ended.returncode != 0 and not about_ours:
        pytest.skip(f"systemd-analyze does not work here: {ended.stderr.strip()}")
    assert about_ours == []


def test_the_plist_says_the_same_to_launchd(in_process: InProcessCommand) -> None:
    ended = in_process("service", "install", "--manager", "launchd", "--print")

    assert ended.code == 0
    agent = plistlib.loads(ended.stdout)
    assert agent["ProgramArguments"] == [sys.executable, "-P", "-m", "switchtower", "serve"]
    assert agent["EnvironmentVariables"]["TOWER_HOME"] == str(in_process.home)
    assert (agent["RunAtLoad"], agent["KeepAlive"], agent["Umask"]) == (True, {"SuccessfulExit": False}, 0o077)
    assert agent["Label"] == system_service.AGENT_LABEL


def test_launchd_cannot_listen_for_us(in_process: InProcessCommand) -> None:
    ended = in_process("service", "install", "--manager", "launchd", "--socket-activation")

    assert (ended.code, ended.stdout) == (64, b"")
    assert "hint: " in ended.stderr


def test_keys_never_get_into_a_unit(in_process: InProcessCommand) -> None:
    in_process.monkeypatch.setenv("OPENAI_API_KEY", "sk-s3cret")
    in_process.monkeypatch.setenv("TOWER_REDACTION_EXTRA", "s3cret")

    for kind in ("systemd", "launchd"):
        assert "s3cret" not in in_process("service", "install", "--manager", kind, "--print").text


def test_install_writes_tells_systemd_and_status_and_uninstall_find_it(
    in_process: InProcessCommand, user: Path, systemctl: Path
) -> None:
    folder = user / ".config/systemd/user"

    installed = in_process("service", "install", "--manager", "systemd", "--socket-activation")

    assert installed.code == 0, installed.stderr
    assert installed.stdout == b""
    assert sorted(file.name for file in folder.iterdir()) == ["switchtower.service", "switchtower.socket"]
    assert systemctl.read_text() == "--user daemon-reload\n--user enable --now switchtower.socket\n"

    status = in_process("service", "status", "--manager", "systemd", "--json")
    assert status.code == 0
    assert status.json == {
        "kind": "systemd",
        "installed": True,
        "files": [str(folder / "switchtower.service"), str(folder / "switchtower.socket")],
        "current": True,
        "socketActivation": True,
        "state": "active",
    }
    assert "state:   active\n" in in_process("service", "status", "--manager", "systemd").text

    systemctl.write_text("")
    gone = in_process("service", "uninstall", "--manager", "systemd")
    assert gone.code == 0
    assert list(folder.iterdir()) == []
    assert systemctl.read_text() == "--user disable --now switchtower.service switchtower.socket\n--user daemon-reload\n"
    assert in_process("service", "status", "--manager", "systemd").code == 1
    assert in_process("service", "uninstall", "--manager", "systemd").stderr == "the service is not installed\n"


def test_installing_again_without_the_socket_removes_it(in_process: InProcessCommand, user: Path, systemctl: Path) -> None:
    in_process("service", "install", "--manager", "systemd", "--socket-activation")
    in_process("service", "install", "--manager", "systemd")

    assert [file.name for file in (user / ".config/systemd/user").iterdir()] == ["switchtower.service"]


def test_a_unit_from_another_shell_is_not_current(in_process: InProcessCommand, systemctl: Path) -> None:
    in_process("service", "install", "--manager", "systemd")
    in_process.monkeypatch.setenv("TOWER_HOME", "/tmp/another")

    ended = in_process("service", "status", "--manager", "systemd", "--json")

    assert (ended.code, ended.json["current"]) == (0, False)
    assert "hint: install it again" in ended.stderr


def test_where_systemctl_is_not_there_the_commands_are_said(
    in_process: InProcessCommand, user: Path, no_service_manager: None
) -> None:
    ended = in_process("service", "install", "--manager", "systemd")

    assert ended.code == 0
    assert (user / ".config/systemd/user/switchtower.service").exists()
    assert "hint: run `systemctl --user daemon-reload` where it is" in ended.stderr
    assert "hint: run `systemctl --user enable --now switchtower.service` where it is" in ended.stderr
    assert in_process("service", "status", "--manager", "systemd", "--json").json["state"] is None


def test_a_systemctl_that_fails_is_quoted_and_the_exit_code_says_so(
    in_process: InProcessCommand, user: Path, systemctl: Path
) -> None:
    Path(f"{systemctl}.fails").touch()

    ended = in_process("service", "install", "--manager", "systemd")

    assert ended.code == 1
    assert "`systemctl --user daemon-reload`: No medium found; hint: " in ended.stderr
    assert (user / ".config/systemd/user/switchtower.service").exists()
    assert systemctl.read_text() == "--user daemon-reload\n", "what follows would only fail too"


def test_settings_that_only_this_shell_has_are_named(in_process: InProcessCommand, systemctl: Path) -> None:
    in_process.monkeypatch.setenv("TOWER_POLICY", "auto")

    ended = in_process("service", "install", "--manager", "systemd")

    assert "not part of the service: TOWER_POLICY; hint: write them with `tower config set`" in ended.stderr
