"""The rules of sessions that live on another host: each report of that host is applied once, in its order. Pure."""

from collections.abc import Collection
from functools import partial
from typing import Any

from switchtower.core import commands, errors, events
from switchtower.core.rules import Decision
from switchtower.core.session import Session

MOST_OPEN = 1_000
"""Approvals, or calls, that a host may leave open in one session."""

OURS_TO_DECIDE = (
    commands.LoadSession,
    commands.UnloadSession,
    commands.DeleteSession,
    commands.RecordOutcome,
    commands.ConfigureSession,
    commands.MarkHost,
    commands.MirrorRun,
)
"""Commands that concern our mirror of such a session. Its host decides all others."""


def refuse_host_commands(session: Session, command: commands.AnyCommand) -> None:
    if session.host is not None and not isinstance(command, OURS_TO_DECIDE):
        raise errors.SessionOnOtherHost(session.host)


def attribute(by: events.Actor, host: str) -> events.Actor:
    """Returns the host as the actor of what it reported, with the actor that it claims. Older versions stored the claim in the
    actor's place.
    """
    if by.via == "host":
        return by
    return events.Actor(name=host, via="host", claims=events.Claim(by.name, by.via))


def decide_mirror(session: Session, command: commands.MirrorRun) -> Decision:
    if session.seq and session.host != command.host:
        raise errors.NotSessionHost(f"{session.id} is not a session of {command.host}")
    told: list[events.AnyEvent] = []
    last = session.relayed_seq
    asked = dict.fromkeys(session.run.pending if session.run else ())
    begun, ended = session.seq > 0, session.seq > 0 and session.run is None
    fresh = [report for report in command.reports if report.seq > last]
    if not begun and fresh and not isinstance(fresh[0].events[0], events.SessionStarted):
        told += command.opening
        begun = True
    for report in fresh:
        if report.seq <= last:
            continue  # reported before
        last = report.seq
        begins = isinstance(report.events[0], events.SessionStarted)
        ends = isinstance(report.events[-1], events.RunCompleted)
        if (begun and begins) or (ended and ends):
            # A session starts once and ends once. A repeated report is only noted, so that its number counts as received.
            relayed = next(event.relayed for event in report.events if event.relayed)
            told.append(events.HostEventReceived(type="", data={}, relayed=relayed))
            continue
        begun = True
        if ends:
            # The host may not report it: an approval does not outlive the run that requested it.
            told += [events.ApprovalWithdrawn(approval_id=approval_id, reason="the run ended") for approval_id in asked]
            asked.clear()
            ended = True
        for event in map(partial(_limit_event, session, asked), report.events):
            if isinstance(event, events.ApprovalRequested):
                if event.approval.id in asked and event.relayed is None:
                    continue  # an inferred event, and the host reported this approval explicitly
                asked[event.approval.id] = None
            elif isinstance(event, events.ApprovalDecided | events.ApprovalExpired | events.ApprovalWithdrawn):
                if event.approval_id not in asked and event.relayed is None:
                    continue  # an inferred event, and there is no such approval
                asked.pop(event.approval_id, None)
            told.append(event)
    if told and session.host_lost:
        told.insert(0, events.HostReturned(host=command.host))
    return Decision(told, command.run_id, {"last_seq": last})


def _limit_event(session: Session, asked: Collection[str], event: events.AnyEvent) -> events.AnyEvent:
    """Forwards an event without applying it when the host leaves too many approvals or calls open."""
    match event:
        case events.ApprovalRequested() if len(asked) >= MOST_OPEN and event.approval.id not in asked:
            said: dict[str, Any] = {"request_id": event.approval.id, "prompt": event.approval.title}
            return events.HostEventReceived(type="run.permission_requested", data=said, relayed=event.relayed)
        case events.ToolCalled() if session.run is not None and len(session.run.open_calls) >= MOST_OPEN:
            said = {"request_id": event.call_id, "tool": event.tool, "args": event.args}
            return events.HostEventReceived(type="tool.call", data=said, relayed=event.relayed)
        case _:
            return event


def decide_host_mark(session: Session, command: commands.MarkHost) -> Decision:
    if session.host is None or session.host_lost == command.lost or session.run is None:
        return Decision([])
    event = events.HostLost(host=session.host) if command.lost else events.HostReturned(host=session.host)
    return Decision([event], session.run.id)
