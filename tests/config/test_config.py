"""Where a setting comes from, who wins, and what is said when it cannot be used."""

import subprocess
import sys
from pathlib import Path

import pytest

from switchtower import config
from switchtower.settings import parsers
from switchtower.settings.sources import ConfigError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def write(home: Path, content: str) -> None:
    (home / "config.toml").write_text(content)


def make_environment(home: Path, **variables: str) -> dict[str, str]:
    return {"TOWER_HOME": str(home), "TOWER_SOCKET": "/tmp/s", **variables}


def test_defaults_hold_when_nothing_is_given(home: Path) -> None:
    settings = config.load(environ={"HOME": "/home/ada"})

    assert settings == config.Settings(socket=Path("/home/ada/.push/run/pushd.sock"), folders=settings.folders)
    assert (settings.http, settings.pi, settings.provider) == ("127.0.0.1:8787", "127.0.0.1:3141", "auto")
    assert settings.home is None


def test_a_home_moves_everything_into_one_folder() -> None:
    settings = config.load(environ={"TOWER_HOME": "/h", "XDG_DATA_HOME": "/elsewhere"})

    assert settings.home == Path("/h")
    assert settings.config_file == Path("/h/config.toml")
    assert settings.data_dir == Path("/h/data")
    assert settings.journal_path == Path("/h/data/journal.db")
    assert settings.run_dir == Path("/h/run")
    assert settings.socket == Path("/h/run/pushd.sock")
    assert settings.endpoints_path == Path("/h/run/endpoints.json")
    assert settings.pid_path == Path("/h/run/pushd.pid")
    assert settings.lock_path == Path("/h/run/tower.lock")
    assert settings.log_path == Path("/h/logs/tower.log")


def test_settings_made_in_code_derive_their_paths_too() -> None:
    settings = config.Settings(home=Path("/h"), http="off")

    assert settings.socket == Path("/h/run/pushd.sock")
    assert settings.journal_path == Path("/h/data/journal.db")


def test_without_a_home_the_xdg_folders_are_used_unless_relative() -> None:
    settings = config.load(environ={"HOME": "/home/ada", "XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d", "XDG_STATE_HOME": "rel"})

    assert settings.config_file == Path("/c/switchtower/config.toml")
    assert settings.data_dir == Path("/d/switchtower")
    assert settings.log_path == Path("/home/ada/.local/state/switchtower/tower.log")
    assert settings.run_dir == Path("/home/ada/.push/run")


def test_a_relative_home_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert config.load({"socket": "/tmp/s"}, environ={"TOWER_HOME": "here"}).home == tmp_path / "here"


def test_flag_wins_over_environment_over_file_over_default(home: Path) -> None:
    write(home, 'http = "127.0.0.1:1"\nlog_level = "debug"\nprovider = "file"')
    environ = make_environment(home, TOWER_HTTP="127.0.0.1:2", TOWER_LOG_LEVEL="error")

    settings = config.load({"http": "127.0.0.1:3", "log_level": None}, environ)

    assert (settings.http, settings.log_level, settings.provider) == ("127.0.0.1:3", "error", "file")
    assert settings.pi == "127.0.0.1:3141"


@pytest.mark.parametrize(
    ("variables", "flag", "socket"),
    [
        ({"PUSHD_SOCKET": "/tmp/push"}, None, "/tmp/push"),
        ({"PUSHD_SOCKET": "/tmp/push", "TOWER_SOCKET": "/tmp/tower"}, None, "/tmp/tower"),
        ({"PUSHD_SOCKET": "/tmp/push", "TOWER_SOCKET": "/tmp/tower"}, "/tmp/flag", "/tmp/flag"),
    ],
)
def test_socket_precedence(variables: dict[str, str], flag: str | None, socket: str) -> None:
    settings = config.load({"socket": flag}, {"TOWER_HOME": "/h", **variables})

    assert settings.socket == Path(socket)
    assert settings.default_socket == Path("/h/run/pushd.sock")


def test_an_empty_variable_counts_as_not_set(home: Path) -> None:
    write(home, "retention_days = 7")

    assert config.load(environ=make_environment(home, TOWER_RETENTION_DAYS="")).retention_days == 7.0


def test_file_and_variable_spellings_give_the_same_values(home: Path) -> None:
    variables = {
        "max_line_bytes": "2_048",
        "retention_entries": "0",
        "approval_timeout": "1.5",
        "attach_token_required": "yes",
        "http": "[::1]:0",
        "log_level": "WARNING",
    }
    from_environment = config.load(
        environ=make_environment(home, **{f"TOWER_{name.upper()}": text for name, text in variables.items()})
    )
    write(
        home,
        'max_line_bytes = 2048\nretention_entries = 0\napproval_timeout = 1.5\nattach_token_required = true\nhttp = "[::1]:0"\n'
        'log_level = "warning"\n',
    )

    assert config.load(environ=make_environment(home)) == from_environment


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("http", "8787"),
        ("http", "127.0.0.1:99999"),
        ("http", ":8787"),
        ("pi", "localhost"),
        ("max_line_bytes", "many"),
        ("max_line_bytes", "1"),
        ("output_limit_bytes", "1.5"),
        ("retention_entries", "-1"),
        ("retention_days", "nan"),
        ("receipt_ttl_hours", "0"),
        ("approval_timeout", "inf"),
        ("attach_token_required", "perhaps"),
        ("demo_delay_ms", "-1"),
        ("log_level", "loud"),
        ("pi", "3141"),
        ("pi_max_connections", "0"),
        ("pi_session_rate", "-1"),
        ("pi_ui_timeout", "0"),
        ("shutdown_timeout", "soon"),
        ("socket", "/tmp/" + "x" * 110),
        ("socket", "~nobody-has-this-name/s"),
        ("host_socket", "/tmp/" + "x" * 110),
        ("hub", "hub.example"),
        ("hub", "ftp://hub.example"),
        ("hub", "https://"),
        ("hub", "https://hub.example/path"),
        ("hub", "https://user:pass@hub.example"),
        ("new_hosts", "everybody"),
        ("lost_after", "0"),
        ("heartbeat", "-1"),
        ("redaction_extra", "(unclosed"),
    ],
)
def test_a_bad_value_names_setting_source_and_remedy(home: Path, name: str, text: str) -> None:
    variable = f"TOWER_{name.upper()}"

    with pytest.raises(ConfigError) as refused:
        config.load(environ=make_environment(home, **{variable: text}))

    assert refused.value.setting == name
    assert f"`{variable}`" in refused.value.source
    assert text in refused.value.problem
    assert f"; hint: {refused.value.hint}" in str(refused.value)


def test_the_choices_are_named_once(home: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        config.load(environ=make_environment(home, TOWER_LOG_LEVEL="loud"))

    assert str(refused.value) == (
        "`log_level` from the variable `TOWER_LOG_LEVEL`: `loud` is not known; hint: use one of debug, info, warning, error"
    )


@pytest.mark.parametrize(
    ("variables", "flag", "pi"),
    [
        ({}, None, "127.0.0.1:3141"),
        ({"PI_SERVER_PORT": "4000"}, None, "127.0.0.1:4000"),
        ({"PI_SERVER_PORT": "0"}, None, "127.0.0.1:0"),
        ({"PI_SERVER_PORT": "4000", "TOWER_PI": "off"}, None, "off"),
        ({"PI_SERVER_PORT": "4000", "TOWER_PI": "off"}, "[::1]:5000", "[::1]:5000"),
    ],
)
def test_the_pi_port_has_its_own_variable_and_one_of_the_original(
    home: Path, variables: dict[str, str], flag: str | None, pi: str
) -> None:
    assert config.load({"pi": flag}, make_environment(home, **variables)).pi == pi


@pytest.mark.parametrize("text", ["127.0.0.1:4000", "off", "99999", "-1", "٣", "4 000", "1" * 5_000])
def test_the_original_s_variable_holds_a_port_alone(home: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"`PI_SERVER_PORT`.* is not a port; hint: give a number below 65536"):
        config.load(environ=make_environment(home, PI_SERVER_PORT=text))


@pytest.mark.parametrize(
    ("content", "variables", "flag", "asked"),
    [
        ("", {}, None, False),
        ("", {"TOWER_PI": "127.0.0.1:3141"}, None, False),  # as a command hands it to the daemon that it starts
        ("", {"TOWER_PI": "127.0.0.1:3142"}, None, True),
        ("", {"PI_SERVER_PORT": "3141"}, None, True),
        ("", {}, "127.0.0.1:3141", True),
        ("", {"TOWER_PI": "127.0.0.1:3141"}, "127.0.0.1:3141", True),
        ("pi = '127.0.0.1:3141'", {}, None, True),
    ],
)
def test_a_default_that_was_only_handed_on_was_not_asked_for(
    home: Path, content: str, variables: dict[str, str], flag: str | None, asked: bool
) -> None:
    write(home, content)

    assert ("pi" in config.load({"pi": flag}, make_environment(home, **variables)).asked) is asked


def test_the_pi_socket_is_in_the_run_folder_unless_that_is_too_deep() -> None:
    deep = "/tmp/" + "deep/" * 30
    assert config.load(environ={"TOWER_HOME": "/h", "TOWER_SOCKET": "/tmp/s"}).pi_socket == Path("/h/run/pi.sock")
    assert config.load(environ={"TOWER_HOME": deep, "TOWER_SOCKET": "/tmp/s"}).pi_socket == Path("/tmp/s.pi")


def test_the_host_s_socket_is_in_the_run_folder_unless_that_is_too_deep_or_somebody_chose() -> None:
    deep = "/tmp/" + "deep/" * 30
    assert config.load(environ={"TOWER_HOME": "/h"}).host_socket == Path("/h/run/hostd.sock")
    assert config.load(environ={"TOWER_HOME": deep, "TOWER_SOCKET": "/tmp/s"}).host_socket == Path("/tmp/s.host")
    assert config.load(environ={"TOWER_HOME": "/h", "LOCAL_UNIX_SOCKET": "/tmp/h"}).host_socket == Path("/tmp/h")
    assert config.Settings(home=Path("/h")).host_socket == Path("/h/run/hostd.sock")


@pytest.mark.parametrize(
    ("spelled", "hub"),
    [
        ("https://hub.example", "https://hub.example"),
        ("http://127.0.0.1:8787/", "http://127.0.0.1:8787"),
        ("wss://hub.example", "https://hub.example"),
        ("ws://[::1]:8787", "http://[::1]:8787"),
    ],
)
def test_a_hub_is_named_by_its_web_address(home: Path, spelled: str, hub: str) -> None:
    assert config.load(environ=make_environment(home, TOWER_HUB=spelled)).hub == hub


def test_hosts_have_the_original_s_variables_too(home: Path) -> None:
    settings = config.load(environ=make_environment(home, HOST_ID="host_1", REDACTION_EXTRA_REGEX="ACME-[0-9]+"))
    assert (settings.host_id, settings.redaction_extra) == ("host_1", "ACME-[0-9]+")
    assert config.load(environ=make_environment(home, HOST_ID="host_1", TOWER_HOST_ID="host_2")).host_id == "host_2"


def test_a_bad_flag_is_named_as_a_flag(home: Path) -> None:
    with pytest.raises(ConfigError, match="`max_line_bytes` from the flag `--max-line-bytes`: `x` is not a whole number"):
        config.load({"max_line_bytes": "x"}, make_environment(home))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("retention_dais = 1", "did you mean `retention_days`?"),
        ("log-level = 'info'", "did you mean `log_level`?"),
        ("colour = 1", "remove it; the settings are socket, http"),
        ("home = '/x'", "set `TOWER_HOME`"),
        ("[http]\nport = 1", "`http` from"),
        ("max_line_bytes = true", "is not a whole number"),
        ("retention_days = " + "9" * 400, "is not a number"),
        ("http = ", "not valid TOML"),
    ],
)
def test_a_bad_file_is_refused_with_a_remedy(home: Path, content: str, message: str) -> None:
    write(home, content)

    with pytest.raises(ConfigError) as refused:
        config.load(environ=make_environment(home))

    assert str(home / "config.toml") in str(refused.value)
    assert message in str(refused.value)


def test_a_home_too_deep_for_a_socket_is_refused_early() -> None:
    with pytest.raises(ConfigError, match=f"set `TOWER_SOCKET` to a path of at most {parsers.SOCKET_PATH_LIMIT} bytes"):
        config.load(environ={"TOWER_HOME": "/tmp/" + "deep/" * 30})


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:0", ("127.0.0.1", 0)), ("localhost:80", ("localhost", 80)), ("[::1]:8787", ("::1", 8787)), ("off", None)],
)
def test_an_address_in_its_parts(text: str, address: tuple[str, int] | None) -> None:
    assert parsers.parse_address(text) == address


def test_every_setting_is_reachable_by_file_variable_and_flag() -> None:
    for setting in config.SETTINGS:
        assert hasattr(config.Settings, setting.name)
        assert setting.variables[0] == f"TOWER_{setting.name.upper()}"
        assert setting.flag == "--" + setting.name.replace("_", "-")
        assert setting.in_file == (setting.name != "home"), "the home decides where the file is"


def test_the_documentation_has_a_row_for_every_setting_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs/configuration.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if "`TOWER_" in line and line.startswith("|") and "--" in line]

    assert len(rows) == len(config.SETTINGS)
    for setting, (_, key, variables, flag, default, *_) in zip(config.SETTINGS, rows, strict=True):
        assert key.strip() == (f"`{setting.name}`" if setting.in_file else "–")
        assert [name.strip(" `") for name in variables.split(",")] == list(setting.variables)
        assert flag.strip(" `") == f"{setting.flag} {setting.metavar}".strip()
        if setting.default is not None:
            assert setting.parse(default.strip(" `")) == setting.default
        assert setting.help.split(":")[0] in page


def test_loading_without_a_file_imports_no_toml_parser() -> None:

    code = (
        "import sys; from switchtower import config; config.load(environ={'HOME': '/nowhere'}); print('tomllib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("entry", ["https://app.example/path", "https://", "https://user@app.example", "https://app.example#x"])
def test_an_origin_is_a_scheme_a_name_and_a_port(entry: str) -> None:
    assert parsers.parse_origins("hub.example,https://app.example:8443") == ("hub.example", "https://app.example:8443")
    with pytest.raises(ValueError, match="is not an origin"):
        parsers.parse_origins(f"hub.example,{entry}")
