"""Sessions as the daemon describes them, with fixed ids and times."""

from typing import Any

from msgspec import structs
from tests.tui.told import RUN, SESSION, T0

from switchtower.client.frames import PushEvent
from switchtower.protocols.push import extension_messages, messages
from switchtower.tui.state.session_rows import InboxItem

NOTHING_SPENT = extension_messages.Usage(0, 0, 0, 0, 0, 0.0, 0)

ABOUT = extension_messages.SessionInfo(
    sessionId=SESSION,
    state="completed",
    title="fix the build",
    mode="interactive",
    engine="agent",
    provider="demo",
    model="demo-1",
    thinking=None,
    policy="ask",
    rules=[],
    limits=messages.Limits(),
    sandbox="local",
    rootPath="/work/orchard",
    branch="main",
    worktreeOf=None,
    activeRunId=None,
    queue=[],
    usage=extension_messages.Usage(3, 12_345, 678, 0, 0, 0.0421, 0),
    runUsage=None,
    contextTokens=9_000,
    contextWindow=20_000,
    undoable=1,
    redoable=0,
    version=1,
    lastSeq=10,
    createdAt=T0,
    updatedAt=T0 + 10_000,
)
PROGRAM = extension_messages.Terminal(
    tool="htop", command="htop", cols=40, rows=6, screenSeq=0, waitsFor=None, exitCode=None, host="attic"
)


def make_session_info(**changes: Any) -> extension_messages.SessionInfo:
    return structs.replace(ABOUT, **changes)


def make_listed_session(
    session_id: str = SESSION, state: Any = "completed", updated_ms: int = T0, root: str = "/work/orchard"
) -> Any:
    return messages.ListedSession(session_id, state, updated_ms, messages.ListedRepo(root, "main"))


def make_inbox_item(event: PushEvent, session_name: str = "fix the build", host: str = "") -> InboxItem:
    assert isinstance(event.payload, messages.ApprovalRequired)
    return InboxItem(event.session_id, event.run_id or RUN, event.payload, session_name, host)
