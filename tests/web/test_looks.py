"""A tower at work, on a desk and on a phone: each view shows what it should. `DRAW=1` draws them for the documentation."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.conformance.daemons import Daemon
from tests.conftest import StartDaemon
from tests.web.conftest import OpenWindow, Picture
from tests.web.house import House, repository
from tests.web.visiting import DESKTOP, PHONE, expect

pytestmark = pytest.mark.asyncio(loop_scope="session")

SIZES = {"desktop": DESKTOP, "phone": PHONE}
CODE = 'def greeting(name: str) -> str:\n    """Says hello."""\n    return f"Hello {name}"\n'


@pytest.mark.parametrize("kind", list(SIZES))
async def test_each_view_shows_the_tower_at_work(
    kind: str,
    page_folder: Path,
    own_daemon: StartDaemon,
    enter_house: Callable[[Daemon], Awaitable[House]],
    open_window: OpenWindow,
    workspace: Path,
    picture: Picture,
) -> None:
    daemon = own_daemon(web_dir=page_folder, host_id="host_here", host_name="workstation")
    house = await enter_house(daemon)
    (workspace / "greeting.py").write_text(CODE)
    await repository(workspace)
    await house.push.run(await house.agent(workspace, title="Explain the greeting"), "read greeting.py")
    await house.push.run(await house.agent(workspace, title="Look for TODOs"), "search TODO\nlist .")
    edit = "edit greeting.py: Hello {name} => Good morning, {name}"
    await house.asked(workspace, edit, title="A friendlier greeting")
    tests = "say: First I look at what is there.\nread greeting.py\nrun: python -m pytest -q"
    session_id, _ = await house.asked(workspace, tests, title="Run the tests")
    run_id = await house.program("env PS1='$ ' sh", workspace, tool="sh")

    window = await (await open_window(daemon, size=SIZES[kind], dark=kind == "phone")).come_in()
    await expect(window.part("session-row")).to_have_count(5)
    await expect(window.row(session_id)).to_contain_text("python -m pytest -q")
    await picture(window, f"page-sessions-{kind}")

    await window.go_to(session_id)
    await expect(window.part("decision-command")).to_have_text("python -m pytest -q")
    await expect(window.part("decision").get_by_role("button", name="Approve")).to_be_in_viewport()
    await picture(window, f"page-conversation-{kind}")

    await window.go("#/inbox")
    await expect(window.part("decision")).to_have_count(2)
    await expect(window.part("decision", has_text="A friendlier greeting")).to_contain_text("Good morning")
    await picture(window, f"page-inbox-{kind}")

    await window.go_to(run_id)
    await window.type("ls -l; git log --oneline; printf '\\033[32m%s\\033[0m\\n' 'all is well'\r")
    await expect(window.terminal_text).to_contain_text("all is well$")  # not what was typed, but what came of it
    await picture(window, f"page-terminal-{kind}")
    assert await window.scrolls_sideways() == []
