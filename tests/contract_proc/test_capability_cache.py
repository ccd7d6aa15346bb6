"""rep 9: what a runtime said of itself can be looked at, and cleared; and no name leads out of the folder."""

from pathlib import Path
from typing import Any

import pytest
from tests.contract_proc.driving import drive

from switchtower.engines.flow import ports

SAID = {"version": "0.1.0", "step_kinds": ["log"], "limits": {"concurrency": 1}}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.requirement("rep:negotiation:clear")
def test_what_was_written_is_shown_until_it_is_cleared(home: Path) -> None:
    assert ports.read_capabilities("proc") is None

    assert ports.write_capabilities("proc", SAID) == home / ".trace_mind/runtime_capabilities/proc.json"

    assert ports.read_capabilities("proc") == SAID
    assert ports.list_engines() == ["proc"]
    assert [file.name for file in ports.cache_folder().iterdir()] == ["proc.json"], "no unfinished file stays"
    assert ports.clear_capabilities("proc")
    assert ports.read_capabilities("proc") is None
    assert not ports.clear_capabilities("proc")
    assert ports.list_engines() == []


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc/passwd", ".hidden", "a\0b", "a\n", "x" * 101, "ä", "-x"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    for use in (
        ports.read_capabilities,
        ports.clear_capabilities,
        lambda engine: ports.write_capabilities(engine, SAID),
    ):
        with pytest.raises(ports.InvalidEngineName, match="hint: "):
            use(name)


@pytest.mark.parametrize("rubbish", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000, b'{"a": "' + b"x" * 2_000_000 + b'"}'])
def test_rubbish_in_the_cache_is_as_good_as_nothing(rubbish: bytes) -> None:
    place = ports.write_capabilities("proc", SAID)
    assert place is not None
    place.write_bytes(rubbish)

    assert ports.read_capabilities("proc") is None
    assert ports.write_capabilities("proc", SAID) == place
    assert ports.read_capabilities("proc") == SAID


def test_a_folder_that_cannot_be_written_hurts_nobody(home: Path) -> None:
    (home / ".trace_mind").write_text("a file where the folder should be")

    assert ports.write_capabilities("proc", SAID) is None
    assert ports.read_capabilities("proc") is None
    assert ports.list_engines() == []


@pytest.mark.requirement("rep:negotiation:cache")
async def test_a_refused_runtime_can_be_looked_at() -> None:
    def remember(said: dict[str, Any]) -> None:
        ports.write_capabilities("mine", said)

    ended = await drive("good", required=["agent.run"], on_capabilities=remember)

    assert ended.exit_code == 3
    known = ports.read_capabilities("mine")
    assert known is not None
    assert "log" in known["step_kinds"]
