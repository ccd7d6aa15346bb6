"""Every core event as relay sends it: of an agent's session, of a terminal's, and of one that lives on another host.

`python -m tests.protocols.relay.samples` writes the golden files anew; what changed is then for a person to read.
"""

from pathlib import Path
from typing import Any

import msgspec
from tests.protocols.push.samples import RUN, SAMPLES, SESSION, entry

from switchtower.core import codec, events
from switchtower.protocols.relay import outbound

GOLDEN = Path(__file__).parent / "golden"
HOST = "host_1"
RELAYED = events.Relayed(seq=7, at_ms=1_759_000_000_123, extra={"theirs": [1, None]})

AGENT = outbound.About(SESSION, SESSION, HOST, mirrored=False, is_terminal=False, ends=False)
TERMINAL = outbound.About(SESSION, SESSION, HOST, mirrored=False, is_terminal=True, ends=False)
MIRRORED = outbound.About(SESSION, SESSION, HOST, mirrored=True, is_terminal=True, ends=False)

MORE: dict[str, list[tuple[str | None, events.AnyEvent]]] = {
    "approval.requested": [
        (
            RUN,
            events.ApprovalRequested(
                approval=events.Approval(
                    id="appr_01K0GD3W7Q8ZJ4X5Y6V7B8N9M0",
                    call_id="terminal",
                    kind="terminal",
                    title="Proceed? (y/n)",
                    summary="rm -r build, " * 20,
                    details={
                        "tool": "codex",
                        "reason": "choice",
                        "args": {"screen": "line\n" * 2_000},
                        "approve_text": "\r",
                        "deny_text": "\x1b",
                    },
                    expires_at_ms=1_760_000_300_000,
                    fingerprint="f" * 64,
                )
            ),
        )
    ],
    "approval.decided": [
        (
            RUN,
            events.ApprovalDecided(
                approval_id="appr_01K0GD3W7Q8ZJ4X5Y6V7B8N9M0",
                verdict=events.Verdict.APPROVE,
                by=events.Actor(name="ada", via="web"),
            ),
        )
    ],
    "terminal.typed": [
        (
            RUN,
            events.TerminalTyped(
                input_id="appr_01K0GD3W7Q8ZJ4X5Y6V7B8N9M0", text="y\n", sha256="c" * 64, by=events.Actor(name="ada", via="web")
            ),
        )
    ],
    "tool.called": [(RUN, events.ToolCalled(call_id=RUN, tool="terminal", args={"command": "codex", "pid": 9}))],
    "tool.finished": [(RUN, events.ToolFinished(call_id=RUN, tool="terminal", duration_ms=9, text="$ exit"))],
    "dialog.opened": [(RUN, events.DialogOpened(events.Dialog("dlg_2", "input", "Name?", 1_760_000_060_000)))],
    "message.queued": [(RUN, events.MessageQueued("msg_3", "then this", events.Delivery.FOLLOW_UP, events.SYSTEM))],
    "errand.started": [
        (RUN, events.ErrandStarted("req_2", "rpc.fs.write", {"content": "x" * 9_000}, events.Actor(name="cy", via="local")))
    ],
}


def samples(kind: str) -> list[tuple[str | None, events.AnyEvent]]:
    return [*SAMPLES[kind], *MORE.get(kind, [])]


def relayed(event: events.AnyEvent) -> events.AnyEvent:
    """As if another host had told it."""
    return msgspec.structs.replace(event, relayed=RELAYED)


def own(event: events.AnyEvent) -> events.AnyEvent:
    """As it happens here."""
    return msgspec.structs.replace(event, relayed=None)


def frame(about: outbound.About, run_id: str | None, event: events.AnyEvent, seq: int) -> Any:
    told = outbound.envelope(about, entry(run_id, event, seq))
    return None if told is None else msgspec.json.decode(told)


def golden(kind: str) -> bytes:
    """The stored form of each sample and the envelopes that it becomes."""
    cases: list[dict[str, Any]] = [
        {
            "event": msgspec.json.decode(codec.encode(event)),
            "agent": frame(AGENT, run_id, own(event), seq),
            "terminal": frame(TERMINAL, run_id, own(event), seq),
            "mirrored": frame(MIRRORED, run_id, relayed(event), seq),
        }
        for seq, (run_id, event) in enumerate(samples(kind), start=1)
    ]
    return msgspec.json.format(msgspec.json.encode(cases), indent=2) + b"\n"


def write() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for kind in SAMPLES:
        (GOLDEN / f"{kind}.json").write_bytes(golden(kind))


if __name__ == "__main__":
    write()
