"""What surrounds a conversation: hosts, files, changes, flows, the audit log, search."""

from pathlib import Path

import pytest
from tests.conformance.daemons import Daemon
from tests.flows import flowing
from tests.relay.stage import Place, Stage
from tests.web.conftest import OpenWindow
from tests.web.house import House, repository
from tests.web.visiting import Window, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_real_host_is_seen_to_come_to_work_and_to_go(
    house: House, daemon: Daemon, stage: Stage, open_window: OpenWindow
) -> None:
    stage.hub = Place(daemon.home)
    host = await stage.real_host("box")
    await stage.online(host.host_id)
    window = await (await open_window(daemon)).come_in("#/hosts")
    row = window.part("host-row", has_text=host.host_id)
    await expect(row).to_contain_text("online")
    await row.click()
    await expect(window.page.get_by_role("heading", name="box")).to_be_visible()
    await expect(window.page.get_by_text("System")).to_be_visible()

    run_id = await house.program("cat", host.workspace, host=host.host_id)
    await window.go_to(run_id)
    await window.type("typed from afar\r")
    await expect(window.terminal_text).to_contain_text("typed from afartyped from afar")

    host.kill()
    await window.go("#/hosts")
    await window.page.reload()
    await expect(row).to_contain_text("away")


async def test_files_of_a_workspace_are_browsed_read_and_searched(house: House, window: Window, workspace: Path) -> None:
    (workspace / "src").mkdir()
    (workspace / "src" / "app.py").write_text("def main() -> None:\n    print('needle')\n")
    session_id = await house.agent(workspace)
    await window.go_to(session_id, "files")
    files = window.page.get_by_role("complementary", name="Files")
    await files.get_by_text("README.md").click()
    await expect(window.part("file-content")).to_have_text("# A workspace\nwith two lines\n")

    await files.get_by_text("src", exact=True).click()
    await files.get_by_text("app.py").click()
    await expect(window.part("file-content")).to_contain_text("print('needle')")
    await expect(window.part("file-content").locator("span").first).to_be_attached()  # it is coloured

    await files.get_by_placeholder("Search in files").fill("needle")
    await files.get_by_placeholder("Search in files").press("Enter")
    await expect(files.get_by_text("src/app.py:2")).to_be_visible()


async def test_changes_are_shown_as_git_sees_them(house: House, window: Window, workspace: Path) -> None:
    await repository(workspace, branch="feature/signals")
    (workspace / "README.md").write_text("# A workspace\nwith two other lines\n")
    (workspace / "new.txt").write_text("brand new\n")
    session_id = await house.agent(workspace)
    await window.go_to(session_id, "changes")

    await expect(window.page.get_by_role("heading", name="feature/signals")).to_be_visible()
    diff = window.page.get_by_role("group", name="Lines of README.md")
    await expect(diff).to_contain_text("with two lines")
    await expect(diff).to_contain_text("with two other lines")
    await window.page.get_by_role("button", name="new.txt").click()
    await expect(window.page.get_by_role("group", name="Lines of new.txt")).to_contain_text("brand new")


async def test_a_flow_is_drawn_and_its_steps_follow_what_happens(house: House, window: Window, workspace: Path) -> None:
    flow = flowing.chain(
        flowing.shell("prepare", "echo ready"),
        flowing.node("decide", "approval", title="Publish it?", message="It cannot be taken back"),
        flowing.counting("publish"),
    )
    session_id = await flowing.start(house.push, workspace, flow)
    await window.go_to(session_id)
    steps = window.part("flow-node")
    await expect(steps).to_have_count(3)
    prepare, decide, publish = (window.page.locator(f'[data-step="{name}"]') for name in ("prepare", "decide", "publish"))
    await expect(prepare).to_have_attribute("data-state", "succeeded")
    await expect(decide).to_have_attribute("data-state", "asks")
    await expect(publish).to_have_attribute("data-state", "waiting")

    await window.part("decision").get_by_role("button", name="Approve").click()
    await expect(publish).to_have_attribute("data-state", "succeeded")
    await prepare.click()
    await expect(window.part("flow-step")).to_contain_text("prepare")
    assert (workspace / "publish.txt").read_text() == "ran\n"


async def test_the_audit_log_says_who_decided_what(house: House, window: Window, workspace: Path) -> None:
    session_id, _ = await house.asked(workspace, "run: echo audited", title="Seen in the audit log")
    await window.go_to(session_id)
    await window.part("decision").get_by_role("button", name="Approve").click()
    await house.told(session_id, "run_complete")
    await window.go("#/admin/audit")

    row = window.page.get_by_role("row").filter(has_text="Seen in the audit log")
    await expect(row).to_contain_text("approved")
    await expect(row).to_contain_text("echo audited")


async def test_the_list_is_live_and_searchable(house: House, window: Window, workspace: Path) -> None:
    session_id = await house.agent(workspace, title="A needle among sessions")
    other = await house.agent(workspace, title="Hay")
    await expect(window.row(session_id)).to_contain_text("A needle among sessions")
    await expect(window.row(other)).to_be_visible()
    await window.page.keyboard.press("/")
    await window.page.keyboard.type("needle")
    await expect(window.row(other)).to_have_count(0)
    await window.page.keyboard.press("Enter")
    await expect(window.part("session-title")).to_have_text("A needle among sessions")

    await house.rename(session_id, "Renamed from elsewhere")
    await window.page.reload()
    await expect(window.part("session-title")).to_have_text("Renamed from elsewhere")
