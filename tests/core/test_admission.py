"""What a new session may have, by rule: sandboxes, and the children of runs."""

import pytest
from msgspec.structs import replace

from switchtower.core import admission, commands, errors, events
from switchtower.core.session import Run, Session, Usage
from switchtower.testing.sessions import start_session

RUN = "run_1"


def parent(**fields: object) -> Session:
    session = Session(id="sess_1", sandbox="bubblewrap", policy="ask", workspace=events.Workspace(root="/work"))
    session.run = Run(id=RUN, started_at_ms=0, headless=False)
    for name, value in fields.items():
        setattr(session, name, value)
    return session


def wish(**fields: object) -> commands.StartSession:
    actor = events.Actor(name="owner", via="cli", run_id=RUN)
    return replace(start_session("sess_2"), actor=actor, policy="ask", sandbox="bubblewrap", **fields)


def bind(command: commands.StartSession, session: Session | None, lent: Usage | None = None) -> commands.StartSession:
    return admission.bind(command, session, lent or Usage(), 120_000, is_inside=True)


def test_a_child_is_bound_to_its_run() -> None:
    bound = bind(wish(), parent())

    assert (bound.parent, bound.parent_run) == ("sess_1", RUN)


@pytest.mark.parametrize(
    ("command", "session"),
    [
        (wish(), None),
        (wish(), parent(run=None)),
        (replace(wish(), sandbox="local"), parent()),
        (replace(wish(), sandbox=None), parent()),
        (replace(wish(), policy="auto"), parent()),
        (replace(wish(), policy=None), parent()),
        (replace(wish(), policy="yolo"), parent(policy="yolo")),
        (replace(wish(), policy="ask"), parent(policy="read-only")),
        (wish(program=events.Program(argv=("true",), command="true", tool="true")), parent()),
        (wish(flow=events.Flow(name="f", document={}, inputs={})), parent()),
        (wish(), parent(budget=events.Budget(max_minutes=2))),
    ],
)
def test_what_is_more_than_the_run_has_is_refused(command: commands.StartSession, session: Session | None) -> None:
    with pytest.raises(errors.AttachForbidden):
        bind(command, session)


def test_another_folder_is_refused() -> None:
    with pytest.raises(errors.AttachForbidden, match="workspace only"):
        admission.bind(wish(), parent(), Usage(), 0, is_inside=False)


def test_the_budget_is_what_the_run_and_its_children_have_left() -> None:
    session = parent(budget=events.Budget(max_turns=10, max_tokens=100, max_cost=1.0, max_minutes=5))
    assert session.run is not None
    session.run.usage = Usage(calls=2, input_tokens=10, output_tokens=10, cost=0.25)
    lent = Usage(calls=3, input_tokens=5, output_tokens=5, cost=0.25)

    bound = bind(wish(budget=events.Budget(max_turns=50, max_cost=0.1)), session, lent)

    assert bound.budget == events.Budget(max_turns=5, max_tokens=70, max_cost=0.1, max_minutes=3)
    with pytest.raises(errors.AttachForbidden, match="used up its budget"):
        bind(wish(), session, Usage(calls=8))


def test_a_child_inherits_what_it_does_not_name() -> None:
    nameless = replace(wish(), policy=None, sandbox=None)

    assert admission.inherit(nameless, parent(policy="read-only")).policy == "read-only"
    assert admission.inherit(nameless, parent(policy="yolo")).policy == "auto"
    assert admission.inherit(nameless, parent()).sandbox == "bubblewrap"
    assert admission.inherit(nameless, parent(sandbox="local")).sandbox is None
    assert admission.inherit(replace(nameless, preset="review"), parent()).policy is None


def test_the_machine_itself_is_weaker_than_any_sandbox() -> None:
    assert admission.is_weaker("local", than="bubblewrap")
    assert not admission.is_weaker("bubblewrap", than="local")
    assert not admission.is_weaker("bubblewrap", than="modal")
