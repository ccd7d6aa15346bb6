"""What hosts tell, in the core's words and back: nothing is lost, nothing changes, and no rubbish makes us stumble."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocols.relay import samples

from switchtower.core import codec, commands, events
from switchtower.core.decide import decide
from switchtower.core.fold import fold
from switchtower.core.ports import journal
from switchtower.core.session import Session
from switchtower.protocols.relay import encoder, inbound, messages, wire_values

NOW_MS = 1_760_000_100_000
HOST = samples.HOST


def make_report(type_: str, data: Any, *, seq: int = 5, ts: Any = "2025-10-09T08:53:20.042Z") -> messages.Envelope:
    frame = {"type": type_, "run_id": "run-7", "host_id": HOST, "seq": seq, "ts": ts, "data": data}
    return msgspec.json.decode(json.dumps(frame), type=messages.Envelope)


def encode_for_apps(report: commands.HostReport, about: encoder.EnvelopeHeader = samples.MIRRORED) -> list[dict[str, Any]]:
    """What apps are sent of it, once it is in our journal."""
    entries = [
        journal.Entry(place, NOW_MS, samples.RUN, event.kind, codec.encode(event))
        for place, event in enumerate(report.events, start=100)
    ]
    return [json.loads(frame) for frame in encoder.encode_batch(about, entries)]


def drop_location(frame: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in frame.items() if name != "id"}


# There and back

OWN = [
    pytest.param(about, run_id, samples.make_own(event), id=f"{name} {event.kind} {number}")
    for name, about in (("agent", samples.AGENT), ("terminal", samples.TERMINAL))
    for kind in sorted(set(events.BY_KIND) - {"host.lost", "host.returned", "host.said"})
    for number, (run_id, event) in enumerate(samples.list_samples(kind))
]


@pytest.mark.parametrize(("about", "run_id", "event"), OWN)
def test_what_a_host_of_ours_tells_comes_out_of_the_hub_as_it_went_in(
    about: encoder.EnvelopeHeader, run_id: str | None, event: events.AnyEvent
) -> None:
    frame = encoder.encode_event(about, samples.make_entry(run_id, event))
    if frame is None:
        return
    report = inbound.parse_report(HOST, msgspec.json.decode(frame, type=messages.Envelope), NOW_MS)
    (again,) = encode_for_apps(report)
    told = json.loads(frame)
    if isinstance(event, events.ApprovalDecided):
        # Whom a host names is its claim: it is passed on as that, in the name of the host.
        claims = {"by": told["data"]["by"], "via": told["data"]["via"]}
        told["data"] |= {"by": HOST, "via": "host", "claims": claims}
    assert drop_location(again) == drop_location(told)


DOCUMENTED: list[tuple[str, dict[str, Any]]] = [
    ("run.started", {"tool": "codex", "cwd": "/work", "command": "codex --ask"}),
    ("run.ready", {"runner_mode": "pty"}),
    ("run.output", {"stream": "stdout", "text": "hello"}),
    ("run.output", {"stream": "stderr", "text": "oh"}),
    ("run.awaiting_input", {"reason": "choice", "prompt": "Which?"}),
    ("run.awaiting_input", {"reason": "permission", "prompt": "May I?", "request_id": "k3j9x"}),
    ("run.input", {"actor": "web", "input_id": "in-1", "text_redacted": "ls\n", "text_sha256": "0" * 64}),
    (
        "run.permission_requested",
        {
            "request_id": "2f1e4a52-8f2f-4c6a-9a53-0c6a2f9d1b11",
            "reason": "permission",
            "prompt": "Run it?",
            "op_tool": "bash",
            "op_args": {"cmd": "make"},
            "op_args_summary": "make",
            "approve_text": "y\n",
            "deny_text": "n\n",
        },
    ),
    ("tool.call", {"request_id": "r-1", "tool": "fs.read", "actor": "local", "args": {"path": "a"}}),
    ("tool.call", {"request_id": "r-1", "tool": "fs.read", "actor": "local", "args": [1, "two", None]}),
    (
        "tool.result",
        {
            "request_id": "r-1",
            "tool": "fs.read",
            "actor": "local",
            "ok": True,
            "duration_ms": 3,
            "result": {"content": "x" * 9_000},
        },
    ),
    (
        "tool.result",
        {"request_id": "r-1", "tool": "fs.read", "actor": "web", "ok": False, "duration_ms": 3, "error": "path contains .."},
    ),
    ("run.exited", {"exit_code": 130}),
    ("run.of_tomorrow", {"deep": {"er": [1, 2.5, None, True]}}),
]


@pytest.mark.parametrize(("type_", "data"), DOCUMENTED, ids=lambda value: value if isinstance(value, str) else None)
def test_what_any_host_tells_by_the_document_is_passed_on_with_all_it_said(type_: str, data: dict[str, Any]) -> None:
    said = {**data, "novelty": {"of": "tomorrow"}, "allow_tools": ["a"]}
    report = inbound.parse_report(HOST, make_report(type_, said), NOW_MS)
    assert report.seq == 5
    assert [event.relayed.seq for event in report.events if event.relayed is not None] == [5], "one event has the host's number"
    (frame,) = encode_for_apps(report)
    assert drop_location(frame) == {
        "type": type_,
        "ts": "2025-10-09T08:53:20.042Z",
        "host_id": HOST,
        "run_id": samples.SESSION,
        "seq": 5,
        "data": said,
    }


def test_a_beginning_is_a_session_that_lives_there_and_nobody_attaches_to_by_token() -> None:
    report = inbound.parse_report(
        HOST, make_report("run.started", {"tool": "codex", "cwd": "/there", "command": "codex"}), NOW_MS
    )
    started = report.events[0]
    assert isinstance(started, events.SessionStarted)
    assert (started.host, started.workspace.root, started.attach_token_sha256) == (HOST, "/there", "")
    assert started.program is not None
    assert (started.program.tool, started.program.command) == ("codex", "codex")


@pytest.mark.parametrize(
    ("exit_code", "outcome"), [(0, events.Outcome.SUCCESS), (1, events.Outcome.FAILED), (-1, events.Outcome.FAILED)]
)
def test_an_exit_is_the_run_s_end(exit_code: int, outcome: events.Outcome) -> None:
    report = inbound.parse_report(HOST, make_report("run.exited", {"exit_code": exit_code}), NOW_MS)
    ended = report.events[-1]
    assert isinstance(ended, events.RunCompleted)
    assert (ended.outcome, ended.exit_code) == (outcome, exit_code)


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ("run.input", {"input_id": "k3j9x", "text_redacted": "y\n"}),
        ("tool.result", {"request_id": "k3j9x", "tool": "rpc.bash", "ok": False, "error": "denied"}),
    ],
)
def test_that_a_question_was_answered_is_guessed_from_its_id(type_: str, data: dict[str, Any]) -> None:
    asked = inbound.parse_report(HOST, make_report("run.permission_requested", {"request_id": "k3j9x", "prompt": "?"}), NOW_MS)
    assert isinstance(asked.events[0], events.ApprovalRequested)
    guess = inbound.parse_report(HOST, make_report(type_, data), NOW_MS).events[-1]
    assert isinstance(guess, events.ApprovalWithdrawn)
    assert guess.approval_id == asked.events[0].approval.id
    assert guess.relayed is None


# Times


@given(st.integers(1, 4_000_000_000_000))
def test_a_time_is_spelled_and_read_to_the_millisecond(at_ms: int) -> None:
    assert wire_values.parse_timestamp(wire_values.format_timestamp(at_ms), at_ms) == at_ms


@pytest.mark.parametrize(
    ("stamp", "at_ms"),
    [
        ("2025-01-01T00:00:00Z", 1_735_689_600_000),
        ("2025-01-01T01:00:00.5+01:00", 1_735_689_600_500),
        ("2025-01-01T00:00:00", 1_735_689_600_000),
        ("2125-01-01T00:00:00Z", NOW_MS),
        ("0001-01-01T00:00:00+23:59", NOW_MS),
        ("9999-12-31T23:59:59.999999-23:59", NOW_MS),
        ("1969-12-31T00:00:00Z", NOW_MS),
        ("yesterday", NOW_MS),
        ("", NOW_MS),
        ("2" * 10_000, NOW_MS),
        (1_735_689_600, NOW_MS),
        (None, NOW_MS),
        ({"a": 1}, NOW_MS),
    ],
    ids=repr,
)
def test_a_time_that_nobody_can_read_or_believe_is_now(stamp: Any, at_ms: int) -> None:
    assert wire_values.parse_timestamp(stamp, NOW_MS) == at_ms


# Rubbish

TYPES = sorted({type_ for type_, _ in DOCUMENTED} | {"run.screen", "run.resized", "run.resumed", "run.permission_decided", 'a"b'})
FIELDS = sorted({name for _, data in DOCUMENTED for name in data} | {"cols", "rows", "decision", "by", "via"})
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.sampled_from(["", "approve", "expired", "x" * 2_000_000]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(type_=st.sampled_from(TYPES), data=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=8) | JSON, ts=JSON)
def test_whatever_a_host_says_is_a_report_that_can_be_stored_and_passed_on(type_: str, data: Any, ts: Any) -> None:
    report = inbound.parse_report(HOST, make_report(type_, data, ts=ts), NOW_MS)

    assert report.events
    assert [event.relayed.seq for event in report.events if event.relayed is not None] == [5]
    frames = encode_for_apps(report)
    assert all(frame["seq"] == 5 and frame["run_id"] == samples.SESSION for frame in frames)
    assert len(frames) == 1

    session = Session(id="sess_r.run-7")
    mirror = commands.MirrorRun(
        session_id=session.id, host=HOST, run_id="run_r.run-7", reports=(report,), opening=inbound.make_opening_events(HOST)
    )
    decision = decide(session, mirror, now_ms=NOW_MS, mint=str)
    for seq, event in enumerate(decision.events, start=1):
        fold(session, seq, NOW_MS, decision.run_id, event)
    assert session.relayed_seq == 5


@pytest.mark.parametrize(
    "data", [b"[]", b'"text"', b"7", b"null", b'{"a":' * 3_000 + b"1" + b"}" * 3_000], ids=lambda data: data[:9]
)
def test_data_that_is_no_object_is_noted_as_unreadable(data: bytes) -> None:
    envelope = messages.Envelope(type="run.output", run_id="run-7", seq=5, data=msgspec.Raw(data))
    (event,) = inbound.parse_report(HOST, envelope, NOW_MS).events
    assert isinstance(event, events.HostEventReceived)
    assert set(event.data) == {"unreadable"}


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ("run.output", {"text": 7}),
        ("run.exited", {"exit_code": "0"}),
        ("run.exited", {"exit_code": True}),
        ("run.screen", {"text": "", "cols": 0, "rows": 24}),
        ("run.permission_requested", {"request_id": "x" * 129}),
        ("run.permission_requested", {"request_id": "😀" * 100}),
        ("tool.call", {"request_id": "r-1"}),
    ],
)
def test_what_is_not_as_its_type_promises_is_noted_and_its_number_counts(type_: str, data: dict[str, Any]) -> None:
    (event,) = inbound.parse_report(HOST, make_report(type_, data), NOW_MS).events
    assert isinstance(event, events.HostEventReceived)
    assert event.relayed is not None
    assert event.relayed.seq == 5
    assert len(str(event.data)) < 200, "what was wrong is not kept"
