"""What is installed and what is left behind: floors above known holes, locked tools for the page, private exports."""

import stat
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.relay.stage import RelayNetwork
from tests.relay.stage import relay_network as relay_network

PROJECT = Path(__file__).parents[2]
HOLES = {
    "starlette": ("0.46.0", "0.47.1", "0.49.0"),  # CVE-2025-54121, CVE-2025-62727
    "h11": ("0.14.0", "0.15.0"),  # CVE-2025-43859
    "pyjwt": ("2.10.0",),  # CVE-2024-53861
}


@pytest.mark.parametrize("name", sorted(HOLES))
def test_no_version_with_a_known_hole_can_be_installed(name: str) -> None:
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    (wanted,) = [found for found in map(Requirement, declared) if found.name == name]
    assert not [version for version in HOLES[name] if wanted.specifier.contains(version)]
    pinned = dict(line.lower().split("==") for line in (PROJECT / "constraints.txt").read_text().splitlines() if "==" in line)
    assert wanted.specifier.contains(pinned[name].split()[0])


def test_the_pages_tools_are_installed_as_they_were_locked() -> None:
    makefile = (PROJECT / "Makefile").read_text()
    assert "npm ci" in makefile
    assert "npm install" not in makefile


async def test_an_export_is_for_its_owner_alone(relay_network: RelayNetwork, tmp_path: Path) -> None:
    hub = await relay_network.open_hub()
    async with await hub.push() as push:
        session = await push.start_session(hub.workspace)
        await push.run(session.session_id, "say: hello")
    readable = tmp_path / "old.md"
    readable.write_text("was here")
    readable.chmod(0o644)
    for file in (tmp_path / "new.html", tmp_path / "new.jsonl", readable):
        done = hub.run_tower("export", session.session_id, "-o", str(file))
        assert done.returncode == 0, done
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
