"""A feed in which nothing moves: fixed sessions, fixed events, a fixed clock. For pictures."""

import asyncio
from typing import Any

from msgspec import structs
from tests.tui import people, told

from switchtower import config
from switchtower.protocols.push import extension_messages
from switchtower.tui import event_reader, feed
from switchtower.tui.app import TowerApp
from switchtower.tui.state import session_rows

NOW = told.T0 + 100_000
ROWS = [
    session_rows.SessionListRow("sess_W", "awaiting_approval", NOW - 12_000, "/work/orchard", "tidy the cellar", "demo-1"),
    session_rows.SessionListRow(told.SESSION, "completed", NOW - 90_000, "/work/orchard", "fix the build", "demo-1"),
    session_rows.SessionListRow("sess_R", "running", NOW - 3_000, "/work/press", "press the apples", "claude", host="attic"),
    session_rows.SessionListRow("sess_P", "running", NOW - 400_000, "/work/press", "htop", "htop", is_program=True),
    session_rows.SessionListRow(
        "sess_F", "failed", NOW - 90_000_000, "/work/old", "a long title that does not fit into the list at all", "gpt"
    ),
]
DIFF = "--- a/press.py\n+++ b/press.py\n@@ -1,3 +1,3 @@\n def press(apples):\n-    return None\n+    return juice(apples)\n"
TESTED = "\n".join(f"test {number} … ok" for number in range(1, 12))
STORY = [
    told.make_user_message("Why does the build fail? Please fix it."),
    told.make_thinking("The test imports a module that is not there any more."),
    told.make_token("I will **look** at the test first.\n\n1. run it\n2. read `press.py`\n"),
    told.DONE,
    told.call("sandbox_exec", command="make test"),
    told.make_tool_result(
        "sandbox_exec",
        f"{TESTED}\nFAILED press",
        ms=2_350,
        error="exit code 2",
    ),
    told.call("sandbox_read_file", path="press.py"),
    told.make_tool_result("sandbox_read_file", "def press(apples):\n    return None\n", ms=3),
    told.make_token(
        "The function returns nothing:\n\n```python\ndef press(apples):\n    return None\n```\n\nSee [the guide](https://example.org/press)."
    ),
    told.DONE,
    told.call("sandbox_edit_file", path="press.py", old="    return None", new="    return juice(apples)"),
    told.make_approval(path="press.py", tool="edit_file", diff=DIFF, always="allow edit_file press.py"),
    told.make_decision(by="app"),
    told.make_tool_result("sandbox_edit_file", "edited", ms=5),
    told.make_status("Usage", "12345 tokens in, 678 out, $0.042100 (demo demo-1)", "model"),
    told.make_warning("COMPACTION_FAILED", "The context was not compacted: it is short"),
    told.make_token("Fixed."),
    told.DONE,
    told.complete("success", "fixed", [{"id": "tests", "passed": True, "exitCode": 0, "output": "ok"}]),
]


class FrozenFeed(feed.DaemonFeed):
    def __init__(
        self, settings: config.Settings, *, about: extension_messages.SessionInfo = people.ABOUT, story: Any = STORY
    ) -> None:
        super().__init__(settings)
        self._about = about
        self._story = told.make_story(*story)

    async def run(self, listener: feed.FeedListener) -> None:
        self._listener = listener
        self._set_link("connected")
        listener.on_sessions_listed(session_rows.sort_rows(ROWS))
        await asyncio.Event().wait()

    def follow_session(self, about: extension_messages.SessionInfo) -> None:
        assert self._listener is not None
        asyncio.get_running_loop().call_soon(self._listener.on_events, about.sessionId, self._story)

    async def list_open_dialogs(self, session_id: str) -> list[Any]:
        return []

    async def load_older(self, session_id: str, before_seq: int) -> event_reader.EventPage:
        return event_reader.EventPage([], is_first=True)

    async def list_templates(self, root: str) -> list[extension_messages.Template]:
        return [extension_messages.Template("review", "skill", "looks at the last commit", "/x", "workspace")]

    async def list_models(self) -> list[extension_messages.ModelListing]:
        return [
            extension_messages.ModelListing("work", "anthropic", "big-1", True, "", True, 200_000, 3.0, 15.0),
            extension_messages.ModelListing("openai", "openai", None, False, "no key; hint: set it", False, None, None, None),
            extension_messages.ModelListing("demo", "demo", "demo-1", True, "", False, 20_000, None, None),
        ]

    async def get_diff(self, session_id: str) -> str:
        return f"diff --git a/press.py b/press.py\n{DIFF}"

    async def get_session(self, session_id: str) -> extension_messages.SessionInfo:
        return structs.replace(self._about, sessionId=session_id)


class FrozenApp(TowerApp):
    """Nothing blinks, nothing turns."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.status.tick = lambda: None

    def on_ready(self) -> None:
        # Textual calls the base's own handler too.
        self.main.composer.page.cursor_blink = False


def make_frozen_app(settings: config.Settings, *, session_id: str | None = told.SESSION, **source: Any) -> FrozenApp:
    return FrozenApp(
        settings, FrozenFeed(settings, **source), root="/work/orchard", session_id=session_id, now_ms=lambda: NOW, quiet=0
    )
