"""Every core event as relay sends it: of an agent's session, of a terminal's, and of one that lives on another host.

`python -m tests.protocols.relay.samples` writes the golden files anew; what changed is then for a person to read.
"""

from pathlib import Path
from typing import Any

import msgspec
from tests.protocols.push.samples import RUN, SAMPLES, SESSION, make_entry

from switchtower.core import codec, events
from switchtower.protocols.relay import encoder

GOLDEN = Path(__file__).parent / "golden"
HOST = "host_1"
RELAYED = events.Relayed(seq=7, at_ms=1_759_000_000_123, extra={"theirs": [1, None]})

AGENT = encoder.EnvelopeHeader(SESSION, SESSION, HOST, mirrored=False, is_terminal=False, ends=False)
TERMINAL = encoder.EnvelopeHeader(SESSION, SESSION, HOST, mirrored=False, is_terminal=True, ends=False)
MIRRORED = encoder.EnvelopeHeader(SESSION, SESSION, HOST, mirrored=True, is_terminal=True, ends=False)

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
        (RUN, events.RemoteCallStarted("req_2", "rpc.fs.write", {"content": "x" * 9_000}, events.Actor(name="cy", via="local")))
    ],
}


def list_samples(kind: str) -> list[tuple[str | None, events.AnyEvent]]:
    return [*SAMPLES[kind], *MORE.get(kind, [])]


def make_relayed(event: events.AnyEvent) -> events.AnyEvent:
    """As if another host had told it."""
    return msgspec.structs.replace(event, relayed=RELAYED)


def make_own(event: events.AnyEvent) -> events.AnyEvent:
    """As it happens here."""
    return msgspec.structs.replace(event, relayed=None)


def encode_frame(about: encoder.EnvelopeHeader, run_id: str | None, event: events.AnyEvent, seq: int) -> Any:
    told = encoder.encode_event(about, make_entry(run_id, event, seq))
    return None if told is None else msgspec.json.decode(told)


def encode_golden(kind: str) -> bytes:
    """The stored form of each sample and the envelopes that it becomes."""
    cases: list[dict[str, Any]] = [
        {
            "event": msgspec.json.decode(codec.encode(event)),
            "agent": encode_frame(AGENT, run_id, make_own(event), seq),
            "terminal": encode_frame(TERMINAL, run_id, make_own(event), seq),
            "mirrored": encode_frame(MIRRORED, run_id, make_relayed(event), seq),
        }
        for seq, (run_id, event) in enumerate(list_samples(kind), start=1)
    ]
    return msgspec.json.format(msgspec.json.encode(cases), indent=2) + b"\n"


def write() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for kind in SAMPLES:
        (GOLDEN / f"{kind}.json").write_bytes(encode_golden(kind))


if __name__ == "__main__":
    write()
