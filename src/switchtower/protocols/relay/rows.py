"""Sessions, their history and hosts as the HTTP endpoints list them. Pure."""

from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType

from switchtower.core import events, states
from switchtower.core.ports import journal
from switchtower.protocols.relay import encoder, messages, wire_values

RunRowStatus = Literal["running", "awaiting_input", "awaiting_approval", "exited", "lost"]
MessageRole = Literal["user", "assistant", "system"]

AGENT = "agent"
_MERGED_LIMIT = 16_384


def compute_status(card: journal.Card) -> RunRowStatus:
    active = card.state in states.ACTIVE
    if card.host_lost and (active or card.host is None):
        return "lost"  # its host may reconnect; a node that was lost with its program does not
    if card.pending_approval_id is not None:
        return "awaiting_approval"
    if active:
        return "awaiting_input" if card.waits else "running"
    if not card.tool and card.mode != "headless" and card.engine != encoder.FLOW:
        return "awaiting_input"  # an agent waits for the next message
    return "exited"


def _get_op_tool(card: journal.Card, tool: str) -> str | UnsetType:
    """A program's own prompt is about no tool."""
    is_prompt = bool(card.tool) and tool in (card.tool, encoder.TERMINAL)
    return UNSET if is_prompt else encoder.get_op_tool("", tool) or UNSET


def make_run_row(card: journal.Card, own_host_id: str) -> messages.RunRow:
    state = compute_status(card)
    question, waits = card.question, card.waits
    ended = state == "exited" or (state == "lost" and card.state not in states.ACTIVE)
    asked: dict[str, Any] = {}
    if state == "awaiting_approval" and card.pending_approval_id is not None:
        asked["pending_request_id"] = wire_values.format_request_id(card.pending_approval_id)
        asked["pending_reason"] = "permission"
    if question is not None:
        asked |= {
            "pending_prompt": question.title,
            "pending_op_tool": _get_op_tool(card, question.tool),
            "pending_op_args_summary": question.summary,
        }
    elif waits is not None:
        asked |= {"pending_reason": waits.reason, "pending_prompt": waits.prompt}
    return messages.RunRow(
        id=wire_values.format_run_id(card.session_id),
        host_id=card.host or own_host_id,
        tool=card.tool or card.engine or AGENT,
        cwd=card.workspace.root,
        status=state,
        started_at=wire_values.format_timestamp(card.created_at_ms),
        last_active_at=wire_values.format_timestamp(card.updated_at_ms),
        ended_at=wire_values.format_timestamp(card.ended_at_ms) if ended and card.ended_at_ms is not None else UNSET,
        exit_code=_find_exit_code(card) if ended else UNSET,
        title=card.title or UNSET,
        engine=UNSET if card.host else card.engine or UNSET,
        provider=UNSET if card.host else card.provider or UNSET,
        model=UNSET if card.host else card.model or UNSET,
        preset=card.preset or UNSET,
        policy=card.policy if card.engine == AGENT and not card.host else UNSET,
        sandbox=UNSET if card.host else card.sandbox or UNSET,
        child_of=wire_values.format_run_id(card.child_of) if card.child_of else UNSET,
        usage=_make_usage(card.spent) if card.spent else UNSET,
        acceptance=[messages.RowCriterion(name, passed) for name, passed in card.accepted.items()] or UNSET,
        **asked,
    )


def _make_usage(spent: journal.UsageSummary) -> messages.RowUsage:
    return messages.RowUsage(
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        cost=spent.cost,
        context_used=spent.context_tokens,
        context_window=spent.context_window,
    )


def _find_exit_code(card: journal.Card) -> int:
    if card.exit_code is not None:
        return card.exit_code
    return {
        events.SessionState.COMPLETED: 0,
        events.SessionState.CANCELLED: states.EXIT_CODE_HINT[events.Outcome.CANCELLED],
    }.get(card.state, 1)


class _DecodedEnvelope(msgspec.Struct):
    """One of our own envelopes, decoded again."""

    type: str
    ts: str
    id: int
    data: msgspec.Raw
    seq: int | None = None


_decode = msgspec.json.Decoder(_DecodedEnvelope).decode
_decode_data = msgspec.json.Decoder(dict[str, Any]).decode
_TEXTS = {
    "run.output": "text",
    "run.input": "text_redacted",
    "run.started": "command",
    "run.awaiting_input": "prompt",
    "run.permission_requested": "prompt",
    "run.permission_decided": "decision",
    "tool.call": "tool",
    "tool.result": "tool",
}
_ROLES: dict[str, MessageRole] = {"run.input": "user", "run.output": "assistant"}


def make_history(
    about: encoder.EnvelopeHeader, entries: Sequence[journal.Entry], *, include_output: bool
) -> list[messages.Message]:
    """Returns a page of a run's messages, oldest first. The pieces of an agent's text are joined again."""
    found: list[messages.Message] = []
    speaking: list[str] = []
    for entry in entries:
        frame = encoder.encode_event(about, entry)
        if frame is None:
            continue
        read = _decode(frame)
        if read.type == "run.output" and not include_output:
            continue
        data = _decode_data(read.data)
        if entry.kind == events.TextDelta.kind:
            text = cast(str, data["text"])
            if speaking and sum(map(len, speaking)) < _MERGED_LIMIT:
                speaking.append(text)
                found[-1] = msgspec.structs.replace(found[-1], text="".join(speaking), data=_make_output_data("".join(speaking)))
                continue
            speaking = [text]
        else:
            speaking = []
        found.append(_make_message(read, data))
    return found


def _make_output_data(text: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"stream": "stdout", "text": text}))


def _make_message(read: _DecodedEnvelope, data: dict[str, Any]) -> messages.Message:
    text = data.get(_TEXTS.get(read.type, ""), "")
    if read.type == "run.exited":
        text = f"exit code {data.get('exit_code')}"
    who, request_id = data.get("actor"), data.get("request_id")
    return messages.Message(
        id=read.id,
        seq=read.seq,
        ts=read.ts,
        role=_ROLES.get(read.type, "system"),
        kind=read.type,
        actor=who if isinstance(who, str) else None,
        request_id=request_id if isinstance(request_id, str) else None,
        text=text if isinstance(text, str) else "",
        data=read.data,
    )
