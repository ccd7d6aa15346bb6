"""What a new session may have, by rule: sandboxes, and the children of runs."""

import pytest
from msgspec.structs import replace

from switchtower.core import commands, errors, events
from switchtower.core.rules import admission
from switchtower.core.session import Run, Session, UsageTotals
from switchtower.testing.session_driver import start_session

RUN = "run_1"


def make_parent(**fields: object) -> Session:
    session = Session(id="sess_1", sandbox="bubblewrap", policy="ask", workspace=events.Workspace(root="/work"))
    session.run = Run(id=RUN, started_at_ms=0, headless=False)
    for name, value in fields.items():
        setattr(session, name, value)
    return session


def make_request(**fields: object) -> commands.StartSession:
    actor = events.Actor(name="owner", via="cli", run_id=RUN)
    return replace(start_session("sess_2"), actor=actor, policy="ask", sandbox="bubblewrap", **fields)


def bind(command: commands.StartSession, session: Session | None, lent: UsageTotals | None = None) -> commands.StartSession:
    return admission.bind_to_parent(command, session, lent or UsageTotals(), 120_000, is_inside=True)


def test_a_child_is_bound_to_its_run() -> None:
    bound = bind(make_request(), make_parent())

    assert (bound.parent, bound.parent_run) == ("sess_1", RUN)


@pytest.mark.parametrize(
    ("command", "session"),
    [
        (make_request(), None),
        (make_request(), make_parent(run=None)),
        (replace(make_request(), sandbox="local"), make_parent()),
        (replace(make_request(), sandbox=None), make_parent()),
        (replace(make_request(), policy="auto"), make_parent()),
        (replace(make_request(), policy=None), make_parent()),
        (replace(make_request(), policy="yolo"), make_parent(policy="yolo")),
        (replace(make_request(), policy="ask"), make_parent(policy="read-only")),
        (make_request(program=events.Program(argv=("true",), command="true", tool="true")), make_parent()),
        (make_request(flow=events.Flow(name="f", document={}, inputs={})), make_parent()),
        (make_request(), make_parent(budget=events.Budget(max_minutes=2))),
    ],
)
def test_what_is_more_than_the_run_has_is_refused(command: commands.StartSession, session: Session | None) -> None:
    with pytest.raises(errors.AttachForbidden):
        bind(command, session)


def test_another_folder_is_refused() -> None:
    with pytest.raises(errors.AttachForbidden, match="workspace only"):
        admission.bind_to_parent(make_request(), make_parent(), UsageTotals(), 0, is_inside=False)


def test_the_budget_is_what_the_run_and_its_children_have_left() -> None:
    session = make_parent(budget=events.Budget(max_turns=10, max_tokens=100, max_cost=1.0, max_minutes=5))
    assert session.run is not None
    session.run.usage = UsageTotals(calls=2, input_tokens=10, output_tokens=10, cost=0.25)
    lent = UsageTotals(calls=3, input_tokens=5, output_tokens=5, cost=0.25)

    bound = bind(make_request(budget=events.Budget(max_turns=50, max_cost=0.1)), session, lent)

    assert bound.budget == events.Budget(max_turns=5, max_tokens=70, max_cost=0.1, max_minutes=3)
    with pytest.raises(errors.AttachForbidden, match="used up its budget"):
        bind(make_request(), session, UsageTotals(calls=8))


def test_a_child_inherits_what_it_does_not_name() -> None:
    nameless = replace(make_request(), policy=None, sandbox=None)

    assert admission.inherit_from_parent(nameless, make_parent(policy="read-only")).policy == "read-only"
    assert admission.inherit_from_parent(nameless, make_parent(policy="yolo")).policy == "auto"
    assert admission.inherit_from_parent(nameless, make_parent()).sandbox == "bubblewrap"
    assert admission.inherit_from_parent(nameless, make_parent(sandbox="local")).sandbox is None
    assert admission.inherit_from_parent(replace(nameless, preset="review"), make_parent()).policy is None


def test_the_machine_itself_is_weaker_than_any_sandbox() -> None:
    assert admission.is_weaker("local", than="bubblewrap")
    assert not admission.is_weaker("bubblewrap", than="local")
    assert not admission.is_weaker("bubblewrap", than="modal")
