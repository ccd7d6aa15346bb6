"""`tower backup` and `tower restore`: everything comes back, nothing is lost, and no archive can do harm."""

import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import sqlite3
import stat
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TowerCommand
from tests.cli.inside import InProcessCommand

from switchtower.cli.storage import backup_manifest


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> InProcessCommand:
    return InProcessCommand(tmp_path / "home", monkeypatch, capfdbinary, dict(os.environ))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backup.tar.gz"


def get_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# With a real daemon


def test_a_home_with_real_sessions_goes_to_another_place_and_back(tower_command: TowerCommand, tmp_path: Path) -> None:
    (tower_command.home / "config.toml").write_text('# mine\nlog_level = "debug"\nprovider = "demo"\n')
    (tower_command.home / "presets").mkdir()
    (tower_command.home / "presets/reviewer.toml").write_text('description = "reads"\n')
    session_id = tower_command("run", "--headless", "--json", "write notes.txt: hello", "--approve", "always").json["sessionId"]
    tower_command("user", "add", "ann", "--password-stdin", stdin=b"correct horse")
    backup = tmp_path / "b.tar.gz"

    made = tower_command("backup", "--json", str(backup))  # while the daemon runs

    assert made.code == 0, made.stderr
    assert get_mode(backup) == 0o600
    assert [member["name"] for member in made.json["members"]] == [
        "data/journal.db",
        "data/registry.db",
        "config/config.toml",
        "config/presets/reviewer.toml",
    ]
    lasting = tower_command("attach", session_id, "--jsonl", "--no-follow").stdout
    assert tower_command("run", "--headless", "say: after the backup").code == 0
    refused = tower_command("restore", str(backup), "--force")
    assert (refused.code, refused.stdout) == (1, b"")
    assert "a daemon is already running" in refused.stderr
    tower_command("stop")

    restored = tower_command("restore", "--force", "--json", str(backup))

    assert restored.code == 0, restored.stderr
    assert restored.json["restored"] == ["data/journal.db", "data/registry.db"]
    assert restored.json["unchanged"] == ["config/config.toml", "config/presets/reviewer.toml"]
    assert tower_command("journal", "verify").code == 0
    assert tower_command("attach", session_id, "--jsonl", "--no-follow").stdout == lasting
    assert [session["sessionId"] for session in tower_command("sessions", "--json").json] == [session_id]
    assert [user["name"] for user in tower_command("user", "list", "--json").json] == ["ann"]
    tower_command("stop")
    aside = [Path(kept) for kept in restored.json["kept_aside"]]
    old = next(kept for kept in aside if kept.name.startswith("journal.db.before-restore-") and not kept.name.endswith("-wal"))
    assert tower_command("journal", "verify", str(old)).stdout.startswith(b"ok: 2 sessions")

    elsewhere = tmp_path / "elsewhere"
    assert tower_command("restore", str(backup), TOWER_HOME=str(elsewhere)).code == 0
    assert tower_command("journal", "verify", TOWER_HOME=str(elsewhere)).stdout.startswith(b"ok: 1 sessions")
    assert (elsewhere / "config.toml").read_text() == '# mine\nlog_level = "debug"\nprovider = "demo"\n'
    assert {get_mode(elsewhere / name) for name in ("data/journal.db", "data/registry.db", "config.toml")} == {0o600}


def test_a_backup_is_consistent_while_runs_write(tower_command: TowerCommand, tmp_path: Path) -> None:
    tower_command("sessions")
    writers = [tower_command.start("run", "--headless", "say: " + "word " * 2_000) for _ in range(3)]

    made = [tower_command("backup", str(tmp_path / f"{number}.tar.gz")) for number in range(3)]
    for writer in writers:
        writer.communicate(timeout=60)

    assert [ended.code for ended in made] == [0, 0, 0], made
    for number in range(3):
        home = tmp_path / f"home{number}"
        assert tower_command("restore", str(tmp_path / f"{number}.tar.gz"), TOWER_HOME=str(home)).code == 0
        verified = tower_command("journal", "verify", TOWER_HOME=str(home))
        assert verified.code == 0, verified.stdout


# What goes in


def fill(home: Path) -> None:
    """A home as a daemon leaves it, without starting one."""
    from switchtower.stores.sqlite import database

    for folder in ("data", "run", "logs", "prompts/git", "skills/deploy"):
        (home / folder).mkdir(parents=True)
    for name, scripts in (("journal.db", "journal"), ("registry.db", "registry")):
        with closing(sqlite3.connect(home / "data" / name, isolation_level=None)) as connection:
            database.migrate(connection, scripts)
    for name in backup_manifest.SECRETS:
        (home / name.removeprefix("config/")).write_text(f"s3cret of {name}")
    (home / "config.toml").write_text('policy = "auto"\n')
    (home / "mcp.json").write_text("{}")
    (home / "prompts/git/commit.md").write_text("Commit it")
    (home / "skills/deploy/SKILL.md").write_text("Deploy it")
    (home / "skills/deploy/run.sh").write_text("#!/bin/sh\n")
    (home / "skills/deploy/run.sh").chmod(0o755)
    (home / "run/endpoints.json").write_text("{}")
    (home / "logs/tower.log").write_text("a line\n")
    (home / "data/checkpoints").mkdir()
    (home / "data/checkpoints/x").write_text("y")


PLAIN = {
    "data/journal.db",
    "data/registry.db",
    "config/config.toml",
    "config/mcp.json",
    "config/prompts/git/commit.md",
    "config/skills/deploy/SKILL.md",
    "config/skills/deploy/run.sh",
}


def list_names(file: Path) -> set[str]:
    with tarfile.open(file) as tar:
        return {member.name for member in tar} - {backup_manifest.MANIFEST_NAME}


def test_secrets_go_in_only_when_asked_for_and_run_files_never(in_process: InProcessCommand, file: Path, tmp_path: Path) -> None:
    fill(in_process.home)

    assert in_process("backup", str(file)).code == 0
    assert list_names(file) == PLAIN
    assert b"s3cret" not in gzip.decompress(file.read_bytes())

    assert in_process("backup", "--with-secrets", str(tmp_path / "all.tar.gz")).code == 0
    assert list_names(tmp_path / "all.tar.gz") == PLAIN | set(backup_manifest.SECRETS)
    assert get_mode(tmp_path / "all.tar.gz") == 0o600


def test_the_manifest_has_the_digest_of_each_file_and_the_schemas(in_process: InProcessCommand, file: Path) -> None:
    fill(in_process.home)
    in_process("backup", str(file))

    with tarfile.open(file) as tar:
        described = json.load(tar.extractfile(backup_manifest.MANIFEST_NAME))  # type: ignore[arg-type]
        for member in described["members"]:
            content = tar.extractfile(member["stored"])
            assert content is not None
            assert hashlib.sha256(content.read()).hexdigest() == member["sha256"]
    assert described["format"] == 2
    assert described["schemas"].keys() == {"data/journal.db", "data/registry.db"}
    assert described["secrets"] is False


def test_what_went_in_comes_out_with_its_mode(in_process: InProcessCommand, file: Path, tmp_path: Path) -> None:
    fill(in_process.home)
    in_process("backup", "--with-secrets", str(file))
    new = tmp_path / "new"
    in_process.monkeypatch.setenv("TOWER_HOME", str(new))

    ended = in_process("restore", str(file))

    assert ended.code == 0, ended.stderr
    for name in ("data/owner.token", "data/host.json", "service.env", "config.toml", "prompts/git/commit.md"):
        assert (new / name).read_bytes() == (in_process.home / name).read_bytes()
        assert get_mode(new / name) == 0o600
    assert get_mode(new / "skills/deploy/run.sh") == 0o700
    assert not (new / "logs/tower.log").exists()
    assert not list(new.rglob(".restore-*")), "nothing is left of the unpacking"


def test_a_long_name_of_a_skill_comes_back(in_process: InProcessCommand, file: Path, tmp_path: Path) -> None:
    fill(in_process.home)
    deep = in_process.home / "skills" / ("ö" * 60) / ("y" * 100) / "SKILL.md"
    deep.parent.mkdir(parents=True)
    deep.write_text("deep")
    in_process("backup", str(file))
    new = tmp_path / "new"
    in_process.monkeypatch.setenv("TOWER_HOME", str(new))

    assert in_process("restore", str(file)).code == 0

    assert (new / deep.relative_to(in_process.home)).read_text() == "deep"


def test_a_backup_replaces_nothing_unasked(in_process: InProcessCommand, file: Path) -> None:
    fill(in_process.home)
    file.write_text("dear to somebody")

    refused = in_process("backup", str(file))
    assert (refused.code, file.read_text()) == (1, "dear to somebody")
    assert "is there already; hint: choose another name, or --force" in refused.stderr

    assert in_process("backup", "--force", str(file)).code == 0
    assert list_names(file) == PLAIN


@pytest.mark.parametrize(
    ("place", "told"),
    [(".", "is a folder; hint: "), ("no/such/x.tar.gz", "there is no folder"), ("x.tar.gz", "nothing to back up")],
)
def test_a_backup_that_cannot_be_made_says_why(in_process: InProcessCommand, tmp_path: Path, place: str, told: str) -> None:
    if place != "x.tar.gz":
        fill(in_process.home)

    ended = in_process("backup", str(tmp_path / place))

    assert (ended.code, ended.stdout) == (1, b"")
    assert told in ended.stderr
    assert not list(tmp_path.glob(".*")), "nothing is left behind"


def test_a_damaged_journal_is_not_backed_up_silently(in_process: InProcessCommand, file: Path) -> None:
    fill(in_process.home)
    (in_process.home / "data/journal.db").write_bytes(os.urandom(20_000))

    ended = in_process("backup", str(file))

    assert ended.code == 1
    assert "cannot be read" in ended.stderr
    assert not file.exists()


# What comes out


@pytest.fixture
def backup(in_process: InProcessCommand, file: Path, tmp_path: Path) -> Path:
    """Of a filled home; the home is empty again."""
    fill(in_process.home)
    assert in_process("backup", str(file)).code == 0
    shutil.rmtree(in_process.home)
    return file


def snapshot(home: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file() and "lock" not in path.name
    }


def test_files_that_are_there_are_replaced_only_with_force_and_are_kept(in_process: InProcessCommand, backup: Path) -> None:
    (in_process.home / "data").mkdir(parents=True)
    (in_process.home / "data/journal.db").write_text("old journal")
    (in_process.home / "data/journal.db-wal").write_text("old log")
    (in_process.home / "data/search.db").write_text("an index of the old one")
    (in_process.home / "config.toml").write_text('policy = "ask"\n')
    (in_process.home / "AGENTS.md").write_text("not in the backup")
    before = snapshot(in_process.home)

    refused = in_process("restore", str(backup))

    assert refused.code == 1
    assert "hint: --force does it, and keeps the old ones aside" in refused.stderr
    assert snapshot(in_process.home) == before

    ended = in_process("restore", "--force", "--json", str(backup))

    assert ended.code == 0, ended.stderr
    kept = {Path(path).name.partition(".before-restore-")[0]: Path(path) for path in ended.json["kept_aside"]}
    assert kept["config.toml"].read_text() == 'policy = "ask"\n'
    old = sorted(in_process.home.glob("data/journal.db.before-restore-*"))
    assert [path.read_text() for path in old] == ["old journal", "old log"]
    assert old[1].name == f"{old[0].name}-wal", "SQLite finds the log beside its journal"
    assert (in_process.home / "config.toml").read_text() == 'policy = "auto"\n'
    assert (in_process.home / "AGENTS.md").read_text() == "not in the backup"
    assert not (in_process.home / "data/search.db").exists()
    assert not (in_process.home / "data/journal.db-wal").exists()


def rebuild_archive(backup: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> None:
    """The archive again, after somebody laid hands on it."""
    with tarfile.open(backup) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    described = json.loads(files.pop(backup_manifest.MANIFEST_NAME))
    change(described, files)
    with tarfile.open(backup, "w:gz", format=tarfile.GNU_FORMAT) as tar:
        for name, content in {backup_manifest.MANIFEST_NAME: json.dumps(described).encode(), **files}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    sign_archive(backup)


def sign_archive(backup: Path) -> None:
    with backup.open("r+b") as file:
        backup_manifest.append_checksum(file)


def add(described: dict[str, Any], files: dict[str, bytes], name: str, *, stored: str | None = None) -> None:
    content = b"evil"
    described["members"].append(
        {"name": name, "stored": stored or name, "size": 4, "sha256": hashlib.sha256(content).hexdigest(), "executable": False}
    )
    files[stored or name] = content


HOSTILE: dict[str, tuple[Callable[[dict[str, Any], dict[str, bytes]], None], str]] = {
    "up and out": (lambda d, f: add(d, f, "config/prompts/../../../evil"), "which no backup has"),
    "up at once": (lambda d, f: add(d, f, "../evil"), "which no backup has"),
    "absolute": (lambda d, f: add(d, f, "/tmp/evil"), "which no backup has"),
    "absolute below": (lambda d, f: add(d, f, "config/prompts//tmp/evil"), "which no backup has"),
    "a socket's folder": (lambda d, f: add(d, f, "run/tower.lock"), "which no backup has"),
    "a checkpoint": (lambda d, f: add(d, f, "data/checkpoints/x"), "which no backup has"),
    "a null": (lambda d, f: add(d, f, "config/prompts/a\0b", stored="long/1"), "which no backup has"),
    "a very long name": (lambda d, f: add(d, f, "config/prompts/" + "x" * 2_000, stored="long/1"), "which no backup has"),
    "not in the manifest": (lambda d, f: f.update({"config/extra": b"x"}), "which its manifest does not name"),
    "missing": (lambda d, f: f.pop("config/mcp.json") and None, "`config/mcp.json` is missing in it"),
    "another size": (lambda d, f: f.update({"config/mcp.json": b"{} "}), "has another size"),
    "another content": (lambda d, f: f.update({"config/mcp.json": b"[]"}), "has changed since the backup was made"),
    "named twice": (lambda d, f: d["members"].append(d["members"][0]), "names something twice"),
    "stored twice": (lambda d, f: d["members"][1].update(stored=d["members"][0]["stored"]), "names something twice"),
    "a negative size": (lambda d, f: d["members"][2].update(size=-1), "has an impossible size"),
    "a huge file": (lambda d, f: d["members"][2].update(size=2**40), "has an impossible size"),
    "more than the disk": (lambda d, f: d["members"][0].update(size=2**62), "hint: make room"),
    "a newer format": (lambda d, f: d.update(format=3), "it is of format 3 and this program knows 2"),
    "no format": (lambda d, f: d.pop("format") and None, "its manifest cannot be read"),
    "other types": (lambda d, f: d.update(members={"a": 1}), "its manifest cannot be read"),
}


@pytest.mark.parametrize("named", HOSTILE)
def test_an_archive_that_somebody_changed_is_refused_and_nothing_moves(
    in_process: InProcessCommand, backup: Path, tmp_path: Path, named: str
) -> None:
    change, told = HOSTILE[named]
    rebuild_archive(backup, change)

    ended = in_process("restore", "--force", str(backup))

    assert (ended.code, ended.stdout) == (1, b"")
    assert told in ended.stderr
    assert "hint: " in ended.stderr
    assert snapshot(in_process.home) == {}
    assert not list(tmp_path.rglob("evil"))
    assert not list(in_process.home.rglob(".restore-*"))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.XHDTYPE]
)
def test_links_devices_and_records_are_refused(in_process: InProcessCommand, backup: Path, kind: bytes) -> None:
    with tarfile.open(backup) as tar:
        first = tar.extractfile(backup_manifest.MANIFEST_NAME)
        assert first is not None
        described = first.read()
    with tarfile.open(backup, "w:gz") as tar:
        info = tarfile.TarInfo(backup_manifest.MANIFEST_NAME)
        info.size = len(described)
        tar.addfile(info, io.BytesIO(described))
        link = tarfile.TarInfo("data/journal.db")
        link.type, link.linkname = kind, "/etc/passwd"
        tar.addfile(link)
    sign_archive(backup)

    ended = in_process("restore", str(backup))

    assert ended.code == 1
    assert "it holds something that is no plain file" in ended.stderr
    assert snapshot(in_process.home) == {}


@pytest.mark.parametrize(
    "content",
    [b"", b"not a tar", os.urandom(5_000), gzip.compress(b""), gzip.compress(b"\0" * 10_240), gzip.compress(os.urandom(5_000))],
    ids=["empty", "text", "rubbish", "an empty gzip", "zeros", "rubbish in gzip"],
)
def test_what_is_no_backup_is_one_line(in_process: InProcessCommand, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tar.gz").write_bytes(content)

    ended = in_process("restore", str(tmp_path / "x.tar.gz"))

    assert (ended.code, ended.stdout) == (1, b"")
    assert "hint: " in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_truncated_archive_is_refused_at_every_length(in_process: InProcessCommand, backup: Path) -> None:
    whole = backup.read_bytes()
    for length in range(0, len(whole) - 1, max(1, len(whole) // 23)):
        backup.write_bytes(whole[:length])

        ended = in_process("restore", str(backup))

        assert ended.code == 1, length
        assert snapshot(in_process.home) == {}


def test_no_flipped_bit_goes_unnoticed(in_process: InProcessCommand, backup: Path) -> None:
    """Header, members, end-of-archive blocks, gzip's own checksum and ours: sampled over the file, and all of its end."""
    whole = backup.read_bytes()
    for place in [
        *range(0, len(whole), max(1, len(whole) // 61)),
        *range(len(whole) - backup_manifest.CHECKSUM_SIZE - 24, len(whole)),
    ]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        backup.write_bytes(flipped)

        ended = in_process("restore", str(backup))

        assert ended.code == 1, place
        assert ended.stderr.count("\n") == 1
        assert snapshot(in_process.home) == {}


def test_no_flipped_bit_passes_the_checksum(tmp_path: Path) -> None:
    """Every bit of a small archive. Some unpack to the very same content, so nothing but a checksum of the file finds them."""
    file = tmp_path / "small.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        info = tarfile.TarInfo("manifest.json")
        info.size = 2
        tar.addfile(info, io.BytesIO(b"{}"))
    sign_archive(file)
    whole = file.read_bytes()
    assert backup_manifest.verify_checksum(io.BytesIO(whole))
    for place in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            with pytest.raises(backup_manifest.BackupCorrupt):
                backup_manifest.verify_checksum(io.BytesIO(flipped))


def test_a_backup_without_its_checksum_is_refused(in_process: InProcessCommand, backup: Path) -> None:
    backup.write_bytes(backup.read_bytes()[: -backup_manifest.CHECKSUM_SIZE])

    ended = in_process("restore", str(backup))

    assert (ended.code, ended.stdout) == (1, b"")
    assert "its checksum is missing; hint: see whether it is whole" in ended.stderr
    assert snapshot(in_process.home) == {}


def test_a_backup_of_the_first_format_is_restored_without_a_checksum(in_process: InProcessCommand, backup: Path) -> None:
    def older(described: dict[str, Any], files: dict[str, bytes]) -> None:
        described["format"] = 1

    rebuild_archive(backup, older)
    backup.write_bytes(backup.read_bytes()[: -backup_manifest.CHECKSUM_SIZE])

    assert in_process("restore", str(backup)).code == 0


def test_other_programs_still_read_a_backup(backup: Path) -> None:
    with tarfile.open(backup) as tar:
        assert tar.getnames()[0] == backup_manifest.MANIFEST_NAME
    assert gzip.decompress(backup.read_bytes())


def test_settings_and_data_in_different_folders_find_their_places(
    in_process: InProcessCommand, file: Path, tmp_path: Path
) -> None:
    fill(in_process.home)
    in_process("backup", str(file))
    in_process.monkeypatch.delenv("TOWER_HOME")
    in_process.monkeypatch.setenv("HOME", str(tmp_path / "u"))

    ended = in_process("restore", str(file))

    assert ended.code == 0, ended.stderr
    assert (tmp_path / "u/.config/switchtower/config.toml").read_text() == 'policy = "auto"\n'
    assert (tmp_path / "u/.config/switchtower/skills/deploy/SKILL.md").exists()
    assert (tmp_path / "u/.local/share/switchtower/journal.db").exists()
    assert in_process("journal", "verify").code == 0


def test_a_newer_schema_is_refused(in_process: InProcessCommand, backup: Path) -> None:
    def newer(described: dict[str, Any], files: dict[str, bytes]) -> None:
        content = bytearray(files["data/journal.db"])
        content[60:64] = (999).to_bytes(4, "big")  # where SQLite keeps the user version
        files["data/journal.db"] = bytes(content)
        described["members"][0].update(sha256=hashlib.sha256(content).hexdigest())

    rebuild_archive(backup, newer)

    ended = in_process("restore", str(backup))

    assert ended.code == 1
    assert "is version 999" in ended.stderr
    assert "hint: use the newer program" in ended.stderr
    assert snapshot(in_process.home) == {}


def test_a_journal_that_is_damaged_in_the_backup_is_refused(in_process: InProcessCommand, backup: Path) -> None:
    def damaged(described: dict[str, Any], files: dict[str, bytes]) -> None:
        content = files["data/journal.db"][:4096] + b"\xa5" * (len(files["data/journal.db"]) - 4096)
        files["data/journal.db"] = content
        described["members"][0].update(sha256=hashlib.sha256(content).hexdigest())

    rebuild_archive(backup, damaged)

    ended = in_process("restore", str(backup))

    assert ended.code == 1
    assert "damaged" in ended.stderr or "cannot be read" in ended.stderr
    assert snapshot(in_process.home) == {}


def test_settings_that_cannot_be_used_any_more_are_told_of(in_process: InProcessCommand, backup: Path) -> None:
    def old(described: dict[str, Any], files: dict[str, bytes]) -> None:
        content = b"long_gone = 1\n"
        files["config/config.toml"] = content
        member = next(member for member in described["members"] if member["name"] == "config/config.toml")
        member.update(sha256=hashlib.sha256(content).hexdigest(), size=len(content))

    rebuild_archive(backup, old)

    ended = in_process("restore", str(backup))

    assert ended.code == 0
    assert "the settings that came back cannot be used: `long_gone`" in ended.stderr


def test_a_killed_restore_loses_nothing_and_the_next_one_cleans_up(tower_command: TowerCommand, tmp_path: Path) -> None:
    tower_command("run", "--headless", "say: hello")
    tower_command("stop")
    backup = tmp_path / "b.tar.gz"
    assert tower_command("backup", str(backup)).code == 0
    left = tower_command.home / "data/.restore-data-0000"
    left.mkdir()
    (left / "00000").write_text("of a restore that was killed")

    restore = tower_command.start("restore", "--force", str(backup))
    restore.send_signal(signal.SIGKILL)
    restore.communicate(timeout=60)

    assert tower_command("restore", "--force", str(backup)).code == 0
    assert tower_command("journal", "verify").stdout.startswith(b"ok: 1 sessions")
    assert not list(tower_command.home.rglob(".restore-*"))
