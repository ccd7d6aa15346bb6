"""Who this machine is to hubs: made once, kept for the owner's eyes, and overruled by whoever says otherwise."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from switchtower import config
from switchtower.daemon import home
from switchtower.daemon.home import HostIdentity, load_host_identity, rotate_host_token
from switchtower.settings.sources import ConfigError


def make_settings(home: Path, **chosen: Any) -> config.Settings:
    return config.Settings(home=home, **chosen)


def load_identity(settings: config.Settings, **environ: str) -> HostIdentity:
    return load_host_identity(settings, environ)


def test_it_is_made_once_and_kept(tmp_path: Path) -> None:
    made = load_identity(make_settings(tmp_path))
    assert made.host_id.startswith("host_")
    assert len(made.host_token) >= 32
    assert load_identity(make_settings(tmp_path)) == made
    kept = json.loads(make_settings(tmp_path).host_file.read_text())
    assert kept == {"host_id": made.host_id, "host_token": made.host_token}


def test_two_machines_are_not_the_same(tmp_path: Path) -> None:
    one, other = load_identity(make_settings(tmp_path / "one")), load_identity(make_settings(tmp_path / "other"))
    assert one.host_id != other.host_id
    assert one.host_token != other.host_token


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_only_the_owner_may_read_it(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        load_identity(make_settings(tmp_path))
        assert stat.S_IMODE(make_settings(tmp_path).host_file.stat().st_mode) == 0o600
        rotate_host_token(make_settings(tmp_path))
        assert stat.S_IMODE(make_settings(tmp_path).host_file.stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert [path.name for path in make_settings(tmp_path).host_file.parent.iterdir()] == ["host.json"]


def test_a_setting_and_a_variable_win_over_what_is_kept_and_do_not_change_it(tmp_path: Path) -> None:
    kept = load_identity(make_settings(tmp_path))
    assert load_identity(make_settings(tmp_path, host_id="chosen")) == HostIdentity("chosen", kept.host_token)
    assert load_identity(make_settings(tmp_path), HOST_TOKEN="given") == HostIdentity(kept.host_id, "given")
    assert load_identity(make_settings(tmp_path), HOST_TOKEN="") == kept, "an empty token is none"
    assert load_identity(make_settings(tmp_path)) == kept


def test_the_variable_host_id_is_the_setting(tmp_path: Path) -> None:
    loaded = config.load(environ={"TOWER_HOME": str(tmp_path), "HOST_ID": "from-outside"})
    assert load_identity(loaded).host_id == "from-outside"
    ours = config.load(environ={"TOWER_HOME": str(tmp_path), "HOST_ID": "from-outside", "TOWER_HOST_ID": "ours"})
    assert load_identity(ours).host_id == "ours"


def test_an_id_that_no_hub_would_take_is_refused_with_a_remedy(tmp_path: Path) -> None:
    longest = "x" * home.MAX_ID_LENGTH
    assert load_identity(make_settings(tmp_path, host_id=longest)).host_id == longest
    with pytest.raises(ConfigError, match="shorter"):
        load_identity(make_settings(tmp_path, host_id=longest + "x"))


def test_rotating_makes_a_new_token_under_the_old_id(tmp_path: Path) -> None:
    before = load_identity(make_settings(tmp_path))
    rotate_host_token(make_settings(tmp_path))
    after = load_identity(make_settings(tmp_path))
    assert after.host_id == before.host_id
    assert after.host_token != before.host_token
    assert len(after.host_token) >= 32


def test_rotating_keeps_the_id_that_somebody_chose(tmp_path: Path) -> None:
    rotate_host_token(make_settings(tmp_path, host_id="chosen"))
    assert load_identity(make_settings(tmp_path, host_id="chosen")).host_id == "chosen"


@pytest.mark.parametrize(
    "broken",
    [
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'"text"',
        b'{"host_id":"host_1"}',
        b'{"host_id":7,"host_token":"the-token-itself"}',
        b'{"host_id":"host_1","host_token":["the-token-itself"]}',
        b'{"host_id":"host_1","host_token":"the-token-itself"',
        b'{"host_id":"","host_token":"the-token-itself"}',
        b'{"host_id":"host_1","host_token":""}',
        b"\xff\xfe\x00",
    ],
    ids=repr,
)
def test_a_broken_file_is_an_error_that_says_what_to_do_and_tells_no_token(tmp_path: Path, broken: bytes) -> None:
    path = make_settings(tmp_path).host_file
    path.parent.mkdir(parents=True)
    path.write_bytes(broken)
    with pytest.raises(ConfigError) as refusal:
        load_identity(make_settings(tmp_path))
    assert str(path) in str(refusal.value)
    assert "remove the file" in str(refusal.value)
    assert "the-token-itself" not in str(refusal.value)
    assert path.read_bytes() == broken, "what is broken is the owner's to remove"


def test_an_empty_file_is_as_none(tmp_path: Path) -> None:
    """What a crash between making and writing leaves on some disks."""
    path = make_settings(tmp_path).host_file
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\n")
    assert load_identity(make_settings(tmp_path)) == load_identity(make_settings(tmp_path))


def test_no_token_is_in_what_is_printed(tmp_path: Path) -> None:
    made = load_identity(make_settings(tmp_path))
    assert made.host_id in repr(made)
    for printed in (repr(made), str(made), f"{made}", repr([made])):
        assert made.host_token not in printed


def test_a_machine_has_a_name_and_the_chosen_one_wins(tmp_path: Path) -> None:
    assert home.get_host_name(make_settings(tmp_path, host_name="desk")) == "desk"
    assert home.get_host_name(make_settings(tmp_path))
    assert "." not in home.get_host_name(make_settings(tmp_path))
