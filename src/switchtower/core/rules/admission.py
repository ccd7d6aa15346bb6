"""The limits of a new session: never a weaker sandbox than is configured, and, when a process of a run starts it, never more
than that run has. Pure.

A session that a run starts is its child: it has the run's sandbox or a stronger one, at most its policy, a share of its
budget, and it ends with the run. A process of a run commands its children and no other session, and decides nothing.
"""

from msgspec.structs import replace

from switchtower.core import commands, errors, events, policy
from switchtower.core.session import Session, UsageTotals

LOCAL = "local"
"""No sandbox: commands run on the machine itself."""
_MOST_FOR_A_CHILD = policy.PROFILES.index("auto")
_MINUTE_MS = 60_000
_CHILDS_COMMANDS = (
    commands.SendMessage,
    commands.QueueMessage,
    commands.CancelRun,
    commands.CompactContext,
)


def is_weaker(sandbox: str, than: str) -> bool:
    """Returns whether a command can do more in the first sandbox than in the second."""
    return sandbox == LOCAL and than != LOCAL


def inherit_from_parent(command: commands.StartSession, parent: Session) -> commands.StartSession:
    """Fills in from the run's session what the request leaves open. A preset has its own policy."""
    named = command.policy is not None or command.preset is not None
    return replace(
        command,
        policy=command.policy if named else policy.PROFILES[_find_policy_limit(parent)],
        sandbox=command.sandbox or (None if parent.sandbox == LOCAL else parent.sandbox),
    )


def bind_to_parent(
    command: commands.StartSession, parent: Session | None, lent: UsageTotals, now_ms: int, *, is_inside: bool
) -> commands.StartSession:
    """Returns the session as a child of the run that starts it. `lent` is the usage of the run's other children; `is_inside`
    means that the folder lies in the run's workspace. Raises `AttachForbidden` for more than the run itself has.
    """
    if parent is None or parent.run is None:
        raise errors.AttachForbidden(hint="the run of this process has ended, so it starts no sessions")
    if command.program is not None or command.flow is not None:
        raise errors.AttachForbidden(hint="a process of a run cannot start a terminal or a flow")
    if not is_inside:
        raise errors.AttachForbidden(hint="a process of a run can start sessions in the run's workspace only")
    most = _find_policy_limit(parent)
    if policy.PROFILES.index(command.policy or policy.PROFILES[-1]) > most:
        raise errors.AttachForbidden(
            hint=f"a process of this run can start sessions with at most the policy `{policy.PROFILES[most]}`"
        )
    if is_weaker(command.sandbox or LOCAL, parent.sandbox):
        raise errors.AttachForbidden(hint=f"a process of this run can start sessions in the sandbox `{parent.sandbox}` only")
    left = _compute_remaining_budget(parent, parent.run.usage, lent, now_ms - parent.run.started_at_ms)
    return replace(command, parent=parent.id, parent_run=parent.run.id, budget=_combine_budgets(command.budget, left))


def check_command(session: Session, command: commands.Command) -> None:
    """Raises `AttachForbidden` for a command that a process of a run may not send to this session."""
    run_id = command.actor.run_id
    if run_id is None:
        return
    is_title = isinstance(command, commands.ConfigureSession) and command == commands.ConfigureSession(
        session_id=command.session_id, actor=command.actor, title=command.title
    )
    if session.parent_run != run_id or not (is_title or isinstance(command, _CHILDS_COMMANDS)):
        raise errors.AttachForbidden(session.id, hint="a process of a run can only talk to the sessions that it has started")


def is_spent(session: Session, lent: UsageTotals) -> bool:
    """Returns whether a run and its children have used up the run's budget."""
    if session.run is None:
        return False
    used, budget = session.run.usage, session.budget
    return (
        _is_reached(budget.max_turns, used.calls + lent.calls)
        or _is_reached(budget.max_tokens, used.tokens + lent.tokens)
        or _is_reached(budget.max_cost, used.cost + lent.cost)
    )


def _find_policy_limit(parent: Session) -> int:
    return min(policy.PROFILES.index(parent.policy), _MOST_FOR_A_CHILD)


def _is_reached(limit: float | None, used: float) -> bool:
    return limit is not None and used >= limit


def _compute_remaining_budget(parent: Session, used: UsageTotals, lent: UsageTotals, elapsed_ms: int) -> events.Budget:
    if is_spent(parent, lent):
        raise errors.AttachForbidden(hint="the run has used up its budget")
    budget = parent.budget
    minutes = None if budget.max_minutes is None else budget.max_minutes - elapsed_ms / _MINUTE_MS
    if minutes is not None and minutes <= 0:
        raise errors.AttachForbidden(hint="the run has used up its time")
    return events.Budget(
        max_turns=None if budget.max_turns is None else budget.max_turns - used.calls - lent.calls,
        max_tokens=None if budget.max_tokens is None else budget.max_tokens - used.tokens - lent.tokens,
        max_cost=None if budget.max_cost is None else budget.max_cost - used.cost - lent.cost,
        max_minutes=minutes,
    )


def _combine_budgets(asked: events.Budget | None, left: events.Budget) -> events.Budget:
    asked = asked or events.Budget()

    def least(one: float | None, other: float | None) -> float | None:
        return min((limit for limit in (one, other) if limit is not None), default=None)

    turns, tokens = least(asked.max_turns, left.max_turns), least(asked.max_tokens, left.max_tokens)
    return events.Budget(
        max_turns=None if turns is None else int(turns),
        max_tokens=None if tokens is None else int(tokens),
        max_cost=least(asked.max_cost, left.max_cost),
        max_minutes=least(asked.max_minutes, left.max_minutes),
    )
