"""`tower config`: what is in force and why, and changes of the file that a start would accept."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.inside import InProcessCommand

from switchtower import config
from switchtower.cli.configuration import config_file, sources
from switchtower.settings.parsers import Setting


@pytest.fixture
def temporary_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where copies are made, to see what is left of them."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def in_process(
    tmp_path: Path, temporary_folder: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> InProcessCommand:
    return InProcessCommand(tmp_path, monkeypatch, capfdbinary, dict(os.environ))


@pytest.fixture
def file(in_process: InProcessCommand) -> Path:
    return in_process.home / "config.toml"


def test_the_path_is_printed_whether_or_not_the_file_is_there(in_process: InProcessCommand, file: Path) -> None:
    assert in_process("config", "path").text == f"{file}\n"
    assert in_process("config", "path", "--json").json == {"path": str(file), "exists": False}

    file.write_text("not = [ toml")

    assert in_process("config", "path", "--json").json == {"path": str(file), "exists": True}


def test_every_setting_is_shown_with_its_value_and_where_it_comes_from(in_process: InProcessCommand, file: Path) -> None:
    file.write_text('http = "off"\npolicy = "auto"\npass_env = ["A", "B"]\n')
    in_process.monkeypatch.setenv("TOWER_POLICY", "ask")
    in_process.monkeypatch.setenv("PI_SERVER_PORT", "4000")

    shown = {row["name"]: row for row in in_process("config", "show", "--json").json}

    assert list(shown) == [setting.name for setting in config.SETTINGS]
    assert shown["http"] == {"name": "http", "value": "off", "source": "file", "place": str(file), "default": "127.0.0.1:8787"}
    assert (shown["policy"]["value"], shown["policy"]["source"], shown["policy"]["place"]) == (
        "ask",
        "environment",
        "TOWER_POLICY",
    )
    assert (shown["pi"]["value"], shown["pi"]["place"]) == ("127.0.0.1:4000", "PI_SERVER_PORT")
    assert shown["pass_env"]["value"] == ["A", "B"]
    assert (shown["log_level"]["source"], shown["log_level"]["place"]) == ("default", None)
    assert shown["socket"]["value"] == str(in_process.home / "run/pushd.sock")


def test_a_setting_in_its_section_is_of_the_file_and_is_changed_there(in_process: InProcessCommand, file: Path) -> None:
    file.write_text('[notify]\nwebhook = "https://x.example/s3cret" # mine\nformat = "ntfy"\n')

    shown = {row["name"]: row for row in in_process("config", "show", "--json").json}
    assert (shown["notify_webhook"]["source"], shown["notify_webhook"]["value"]) == ("file", ["[redacted]"])
    assert shown["notify_format"]["value"] == "ntfy"

    assert in_process("config", "set", "notify_format", "json").code == 0
    assert (
        in_process("config", "set", "notify_webhook", "https://y.example/s3cret").stderr == f"`notify_webhook` is set in {file}\n"
    )
    assert file.read_text() == '[notify]\nwebhook = ["https://y.example/s3cret"] # mine\nformat = "json"\n'
    assert in_process("config", "unset", "notify_webhook").code == 0
    assert file.read_text() == '[notify]\nformat = "json"\n'


def test_the_plain_list_has_a_line_a_setting(in_process: InProcessCommand, file: Path) -> None:
    file.write_text('log_level = "debug"\n')

    lines = in_process("config", "show").text.splitlines()

    assert len(lines) == len(config.SETTINGS)
    assert next(line for line in lines if line.startswith("log_level")).split() == ["log_level", str(file), "debug"]
    assert next(line for line in lines if line.startswith("hub")).split() == ["hub", "default", "-"]


def test_secrets_are_hidden_in_the_list(in_process: InProcessCommand, file: Path) -> None:
    file.write_text(
        'redaction_extra = "s3cret-[0-9]+"\n'
        '[models.x]\nprovider = "openai-compatible"\nbase_url = "http://localhost/v1"\nmodel = "m"\n'
        'headers = { Authorization = "Bearer sk-abcdefghijklmnop1234567890" }\n'
    )

    for arguments in (["config", "show"], ["config", "show", "--json"]):
        ended = in_process(*arguments)
        assert ended.code == 0, ended.stderr
        assert b"s3cret" not in ended.stdout
        assert b"sk-abc" not in ended.stdout
        assert b"openai-compatible" in ended.stdout


def test_one_value_is_printed_as_a_variable_would_have_it(in_process: InProcessCommand, file: Path) -> None:
    file.write_text('pass_env = ["A", "B"]\nretention_days = 7\nsandbox_network = true\n')

    assert in_process("config", "get", "pass_env").stdout == b"A,B\n"
    assert in_process("config", "get", "retention-days").stdout == b"7\n"
    assert in_process("config", "get", "sandbox_network").stdout == b"true\n"
    assert in_process("config", "get", "hub").stdout == b"\n"
    assert in_process("config", "get", "hub", "--json").stdout == b"null\n"
    assert in_process("config", "get", "pass_env", "--json").json == ["A", "B"]


def test_an_unknown_name_is_refused_with_the_nearest_one(in_process: InProcessCommand) -> None:
    ended = in_process("config", "get", "log_levle")

    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr == "tower: there is no setting `log_levle`; hint: did you mean `log_level`?\n"


def test_a_value_is_written_for_the_owner_alone_and_everything_else_stays(in_process: InProcessCommand, file: Path) -> None:
    file.write_text('# mine\nhttp = "off" # no pages\n\n[models.x]\nprovider = "openai"\n')
    file.chmod(0o644)

    ended = in_process("config", "set", "log_level", "DEBUG")

    assert (ended.code, ended.stdout) == (0, b"")
    assert ended.stderr == f"`log_level` is `debug` in {file}\n"
    assert file.read_text() == '# mine\nhttp = "off" # no pages\nlog_level = "debug"\n\n[models.x]\nprovider = "openai"\n'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in in_process.home.iterdir()] == ["config.toml"], "nothing is left beside it"


def test_a_first_value_makes_the_file_and_its_folder(in_process: InProcessCommand) -> None:
    home = in_process.home / "new" / "home"
    in_process.monkeypatch.setenv("TOWER_HOME", str(home))

    assert in_process("config", "set", "max_cost", "2.5").code == 0

    assert (home / "config.toml").read_text() == "max_cost = 2.5\n"
    assert config.load(environ={"TOWER_HOME": str(home)}).max_cost == 2.5


EXAMPLES = (
    'a"\\\\d+ # \u00e9',
    "https://hub.example",
    "/tmp/x.sock",
    "127.0.0.1:7870",
    "10.0.0.0/8",
    "postgresql://tower@db.example/tower",
)


def is_accepted(setting: Setting, example: str) -> bool:
    try:
        return bool(setting.parse(example))
    except ValueError:
        return False


@pytest.mark.parametrize("setting", [setting for setting in config.SETTINGS if setting.in_file], ids=lambda setting: setting.name)
def test_every_setting_can_be_set_and_is_what_a_start_reads(setting: Setting, in_process: InProcessCommand, file: Path) -> None:
    said = sources.format_value(setting.default) or next(example for example in EXAMPLES if is_accepted(setting, example))

    ended = in_process("config", "set", setting.name, said)

    assert ended.code == 0, ended.stderr
    assert getattr(config.load(environ={"TOWER_HOME": str(in_process.home)}), setting.name) == setting.parse(said)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("log_level", "loud", "`log_level` from the command line: `loud` is not known; hint: use one of debug,"),
        ("http", "8787", "`http` from the command line: `8787` is not HOST:PORT; hint: give HOST:PORT"),
        ("retention_days", "-1", "is not between 0 and 1e12"),
        ("home", "/tmp", "`home` cannot be in the file; hint: set `TOWER_HOME`"),
        ("redaction_extra", "(", "is not a regular expression"),
        ("models", "x", "there is no setting `models`"),
    ],
)
def test_what_a_start_would_refuse_is_not_written(
    in_process: InProcessCommand, file: Path, name: str, value: str, problem: str
) -> None:
    file.write_text('policy = "auto"\n')

    ended = in_process("config", "set", name, value)

    assert (ended.code, ended.stdout) == (1, b"")
    assert problem in ended.stderr
    assert file.read_text() == 'policy = "auto"\n'


def test_another_mistake_in_the_file_is_told_with_the_file_s_own_name(in_process: InProcessCommand, file: Path) -> None:
    file.write_text('polcy = "auto"\n')

    ended = in_process("config", "set", "log_level", "debug")

    assert ended.code == 1
    assert ended.stderr == f"tower: `polcy` from `{file}`: no setting has this name; hint: did you mean `policy`?\n"
    assert file.read_text() == 'polcy = "auto"\n'


def test_a_bad_value_in_the_file_can_be_mended_or_taken_out(in_process: InProcessCommand, file: Path) -> None:
    file.write_text('log_level = "loud"\n')
    assert in_process("config", "set", "log_level", "info").code == 0
    assert file.read_text() == 'log_level = "info"\n'

    file.write_text('polcy = "auto"\nhttp = "off"\n')
    assert in_process("config", "unset", "polcy").code == 0
    assert file.read_text() == 'http = "off"\n'


@pytest.mark.parametrize(
    ("tables", "problem"),
    [("[models.x]\nprovder = 1\n", "models.x"), ('[[rules]]\neffect = "maybe"\n', "rules"), ("[models\n", "not valid TOML")],
)
def test_the_tables_are_checked_as_a_start_does(in_process: InProcessCommand, file: Path, tables: str, problem: str) -> None:
    file.write_text(tables)

    ended = in_process("config", "set", "log_level", "info")

    assert ended.code == 1
    assert problem in ended.stderr
    assert "hint: " in ended.stderr
    assert file.read_text() == tables


def test_a_variable_that_goes_before_the_file_is_told_of(in_process: InProcessCommand, file: Path) -> None:
    in_process.monkeypatch.setenv("TOWER_LOG_LEVEL", "error")

    ended = in_process("config", "set", "log_level", "debug")

    assert ended.code == 0
    assert "`TOWER_LOG_LEVEL` is set and goes before the file; hint: unset it" in ended.stderr
    assert in_process("config", "get", "log_level").stdout == b"error\n"


def test_a_variable_does_not_hide_a_bad_value_of_the_file(in_process: InProcessCommand, file: Path) -> None:
    file.write_text('policy = "wild"\n')
    in_process.monkeypatch.setenv("TOWER_POLICY", "ask")

    assert in_process("config", "set", "log_level", "debug").code == 1


def test_unset_takes_the_key_out_and_is_content_when_it_was_not_there(in_process: InProcessCommand, file: Path) -> None:
    file.write_text('# c\npolicy = "auto"\n')

    gone, again, wrong = (in_process("config", "unset", name) for name in ("policy", "policy", "plicy"))

    assert (gone.code, gone.stderr) == (0, f"`policy` is no longer in {file}\n")
    assert (again.code, again.stderr) == (0, f"`policy` is not in {file}\n")
    assert (wrong.code, wrong.stderr) == (1, "tower: there is no setting `plicy`; hint: did you mean `policy`?\n")
    assert file.read_text() == "# c\n"


def test_behind_a_link_the_file_that_it_names_is_written(in_process: InProcessCommand, file: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text("# kept elsewhere\n")
    file.symlink_to(real)

    assert in_process("config", "set", "policy", "auto").code == 0

    assert file.is_symlink()
    assert real.read_text() == '# kept elsewhere\npolicy = "auto"\n'


def test_a_folder_that_cannot_be_written_is_told_in_one_line(in_process: InProcessCommand, file: Path) -> None:
    file.mkdir()

    ended = in_process("config", "set", "policy", "auto")

    assert ended.code == 1
    assert ended.stderr.count("\n") == 1
    assert "hint: " in ended.stderr


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    names = ["max_turns", "max_tokens", "pi_max_sessions", "minicodex_replay", "retention_entries", "pi_client_rate"]
    program = (
        "import sys; from pathlib import Path; from switchtower.cli.configuration import config_file as changing, sources\n"
        "changing.set_value(Path(sys.argv[1]), sources.find_setting(sys.argv[2]), 77)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "config.toml"), name]) for name in names]

    assert [writer.wait(60) for writer in writers] == [0] * len(names)
    settings = config.load(environ={"TOWER_HOME": str(tmp_path)})
    assert [getattr(settings, name) for name in names] == [77] * len(names)


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\x00", b"a = " + b"[" * 5_000, b"x" * (config_file.MAX_FILE_BYTES + 1)],
    ids=["no UTF-8", "nested deep", "too long"],
)
def test_rubbish_in_the_file_is_one_line(in_process: InProcessCommand, file: Path, content: bytes) -> None:
    file.write_bytes(content)

    for arguments in (("set", "policy", "auto"), ("unset", "policy")):
        ended = in_process("config", *arguments)
        assert (ended.code, ended.stdout) == (1, b"")
        assert ended.stderr.startswith("tower: `config.toml` from ")
        assert ended.stderr.count("\n") == 1
    assert file.read_bytes() == content


# The editor


def make_editor(folder: Path, script: str) -> str:
    program = folder / "editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_the_editor_gets_a_copy_and_what_it_leaves_is_written(
    in_process: InProcessCommand, file: Path, tmp_path_factory: Any
) -> None:
    file.write_text('policy = "ask"\n')
    in_process.monkeypatch.setenv("VISUAL", make_editor(tmp_path_factory.mktemp("bin"), 'echo "log_level = \\"debug\\"" >> "$1"'))

    ended = in_process("config", "edit")

    assert (ended.code, ended.stdout, ended.stderr) == (0, b"", f"{file} is written\n")
    assert file.read_text() == 'policy = "ask"\nlog_level = "debug"\n'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_a_start_would_refuse_is_kept_aside(in_process: InProcessCommand, file: Path, tmp_path_factory: Any) -> None:
    file.write_text('policy = "ask"\n')
    in_process.monkeypatch.setenv("VISUAL", make_editor(tmp_path_factory.mktemp("bin"), 'echo "[[rules]]" > "$1"'))

    ended = in_process("config", "edit")

    assert ended.code == 1
    assert file.read_text() == 'policy = "ask"\n'
    told, remedy = ended.stderr.splitlines()
    assert told.startswith(f"tower: `rules` from `{file}`: ")
    kept = Path(remedy.rpartition("kept in `")[2].rstrip("`"))
    assert kept.read_text() == "[[rules]]\n"
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700


def test_a_file_that_was_changed_meanwhile_is_left_so(in_process: InProcessCommand, file: Path, tmp_path_factory: Any) -> None:
    file.write_text('policy = "ask"\n')
    script = f'echo "policy = \\"auto\\"" > "$1"; echo "http = \\"off\\"" > {file}'
    in_process.monkeypatch.setenv("VISUAL", make_editor(tmp_path_factory.mktemp("bin"), script))

    ended = in_process("config", "edit")

    assert ended.code == 1
    assert "was changed meanwhile" in ended.stderr
    assert file.read_text() == 'http = "off"\n'


@pytest.mark.parametrize(
    ("script", "code", "told"), [("true", 0, "nothing was changed"), ("exit 3", 1, "ended with 3"), (None, 1, "cannot start")]
)
def test_an_editor_that_does_nothing_or_fails_changes_and_leaves_nothing(
    in_process: InProcessCommand,
    file: Path,
    temporary_folder: Path,
    tmp_path_factory: Any,
    script: str | None,
    code: int,
    told: str,
) -> None:
    file.write_text('policy = "ask"\n')
    in_process.monkeypatch.setenv(
        "VISUAL", "/no/such/editor" if script is None else make_editor(tmp_path_factory.mktemp("bin"), script)
    )

    ended = in_process("config", "edit")

    assert (ended.code, ended.stdout) == (code, b"")
    assert told in ended.stderr
    assert file.read_text() == 'policy = "ask"\n'
    assert list(temporary_folder.iterdir()) == []


def test_a_change_names_the_restart_that_it_needs(shared_command: TowerCommand) -> None:
    assert shared_command("sessions").code == 0

    live, restart = (
        shared_command("config", "set", "max_turns", "150"),
        shared_command("config", "set", "max_line_bytes", "70000"),
    )
    for name in ("max_turns", "max_line_bytes"):
        shared_command("config", "unset", name)

    assert (live.code, restart.code) == (0, 0)
    assert "tower restart" not in live.stderr
    assert "the daemon was started before config.toml changed: run `tower restart`" in restart.stderr
