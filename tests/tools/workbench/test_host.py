"""A host tells what is installed without running it."""

import os
from pathlib import Path

import msgspec
import pytest

from switchtower.tools import remote_ops


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the search path, with one agent in it that would leave a trace."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("codex", "git"):
        (folder / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (folder / name).chmod(0o755)
    (folder / "claude").write_text("not a program")
    monkeypatch.setenv("PATH", str(folder))
    return folder


async def test_info_has_relays_fields_and_names_each_agent(programs: Path, tmp_path: Path) -> None:
    info = msgspec.to_builtins(await remote_ops.read_host_info("host_1", "1.2.3"))

    missing = {"ok": False, "error": "not found on PATH"}
    assert info == {
        "host_id": "host_1",
        "pid": os.getpid(),
        "os": "linux",
        "arch": os.uname().machine,
        "version": "1.2.3",
        "tools": [
            {"tool": "codex", "bin": str(programs / "codex"), "ok": True, "error": None},
            *({"tool": name, "bin": name, **missing} for name in ("claude", "gemini", "iflow", "opencode")),
        ],
    }
    assert not (tmp_path / "ran").exists()


async def test_a_doctor_also_looks_for_what_we_need(programs: Path, tmp_path: Path) -> None:
    info = msgspec.to_builtins(await remote_ops.read_host_info("host_1", "1"))
    doctor = msgspec.to_builtins(await remote_ops.diagnose_host("host_1", "1"))

    deps = [{"name": name, "ok": name == "git"} for name in ("bash", "git", "rg", "bwrap")]
    assert doctor == {**info, "deps": deps}
    assert not (tmp_path / "ran").exists()


async def test_capabilities_add_where_things_are_and_what_can_be_asked(programs: Path) -> None:
    doctor = msgspec.to_builtins(await remote_ops.diagnose_host("host_1", "1", {"mine": str(programs / "codex")}))
    places = {"server_base_url": "http://hub", "local_unix_socket": "/s", "spool_db_path": None, "log_path": None}
    capabilities = await remote_ops.read_host_capabilities(
        "host_1",
        "1",
        {"mine": str(programs / "codex")},
        server_base_url="http://hub",
        local_unix_socket="/s",
        spool_db_path=None,
        log_path=None,
        supported_rpc={"rpc.bash", "rpc.a"},
    )

    assert msgspec.to_builtins(capabilities) == {**doctor, **places, "supported_rpc": ["rpc.a", "rpc.bash"]}
    assert capabilities.tools[0].ok


async def test_a_program_in_the_current_folder_does_not_count(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gemini").write_text("#!/bin/sh\n")
    (tmp_path / "gemini").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".{os.pathsep}{os.pathsep}{programs}")

    gemini = next(tool for tool in (await remote_ops.read_host_info("h", "1")).tools if tool.tool == "gemini")
    assert not gemini.ok
