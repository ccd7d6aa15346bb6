"""A tower at work, on a desk and on a phone: each view shows what it should. `DRAW=1` draws them for the documentation."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.conformance.daemons import ManagedDaemon
from tests.conftest import StartDaemon
from tests.web.conftest import OpenWindow, Picture
from tests.web.house import ApiUser, make_repository
from tests.web.visiting import DESKTOP, PHONE, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

SIZES = {"desktop": DESKTOP, "phone": PHONE}
CODE = 'def greeting(name: str) -> str:\n    """Says hello."""\n    return f"Hello {name}"\n'


@pytest.mark.parametrize("kind", list(SIZES))
async def test_each_view_shows_the_tower_at_work(
    kind: str,
    page_folder: Path,
    dedicated_daemon: StartDaemon,
    make_api_user: Callable[[ManagedDaemon], Awaitable[ApiUser]],
    open_browser_window: OpenWindow,
    workspace: Path,
    save_picture: Picture,
) -> None:
    daemon = dedicated_daemon(web_dir=page_folder, host_id="host_here", host_name="workstation")
    house = await make_api_user(daemon)
    (workspace / "greeting.py").write_text(CODE)
    await make_repository(workspace)
    await house.push.run(await house.start_agent(workspace, title="Explain the greeting"), "read greeting.py")
    await house.push.run(await house.start_agent(workspace, title="Look for TODOs"), "search TODO\nlist .")
    edit = "edit greeting.py: Hello {name} => Good morning, {name}"
    await house.start_waiting_session(workspace, edit, title="A friendlier greeting")
    tests = "say: First I look at what is there.\nread greeting.py\nrun: python -m pytest -q"
    session_id, _ = await house.start_waiting_session(workspace, tests, title="Run the tests")
    run_id = await house.start_program("env PS1='$ ' sh", workspace, tool="sh")

    window = await (await open_browser_window(daemon, size=SIZES[kind], dark=kind == "phone")).log_in_as_owner()
    await expect(window.find_part("session-row")).to_have_count(5)
    await expect(window.find_row(session_id)).to_contain_text("python -m pytest -q")
    await save_picture(window, f"page-sessions-{kind}")

    await window.open_run(session_id)
    await expect(window.find_part("decision-command")).to_have_text("python -m pytest -q")
    await expect(window.find_part("decision").get_by_role("button", name="Approve")).to_be_in_viewport()
    await save_picture(window, f"page-conversation-{kind}")

    await window.navigate("#/inbox")
    await expect(window.find_part("decision")).to_have_count(2)
    await expect(window.find_part("decision", has_text="A friendlier greeting")).to_contain_text("Good morning")
    await save_picture(window, f"page-inbox-{kind}")

    await window.open_run(run_id)
    await window.type("ls -l; git log --oneline; printf '\\033[32m%s\\033[0m\\n' 'all is well'\r")
    await expect(window.terminal_text).to_contain_text("all is well$")  # not what was typed, but what came of it
    await save_picture(window, f"page-terminal-{kind}")
    assert await window.find_horizontal_overflow() == []
