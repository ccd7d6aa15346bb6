"""Recovery after a start: every run that was active when the daemon ended is resumed or closed, by the same commands as any
other.

A run that waited for a decision keeps waiting and continues when the decision arrives; so does a flow that waits for people or
agents. Any other run lost its engine in the middle of something with an unknown effect, so it is closed as interrupted and
the processes that it started are killed.
"""

import logging
from collections.abc import Callable

from switchtower.core import commands, states
from switchtower.core.session import REMOTE_CALL
from switchtower.runtime.lane import Lane
from switchtower.runtime.runs import RunManager

log = logging.getLogger(__name__)

SHELL_INTERRUPTED = "the daemon ended while the command was running"
INTERRUPTED = "the daemon ended while the run was working"
REMOTE_CALL_INTERRUPTED = "the daemon ended before it was done"


async def recover(lane: Lane, runs: RunManager, kill_processes: Callable[[str], int], *, lost: str | None = None) -> None:
    """`lost` is the machine that is no longer reachable, when the run was not on this one."""
    await lane.flush()  # loads the session
    session = lane.session
    if session is None:
        return
    for shell_id in list(session.shells):
        kill_processes(shell_id)
        finish = commands.FinishShell(
            session_id=session.id, shell_id=shell_id, exit_code=None, text=SHELL_INTERRUPTED, cancelled=True
        )
        await lane.ask(finish)
    for errand_id in list(session.errands):
        ended = commands.FinishRemoteCall(
            session_id=session.id, errand_id=errand_id, ok=False, duration_ms=0, error=REMOTE_CALL_INTERRUPTED
        )
        await lane.ask(ended)
    if session.run is None:
        return
    run = session.run
    for approval in [approval for approval in run.pending.values() if approval.kind == REMOTE_CALL]:
        await lane.ask(commands.WithdrawApproval(session_id=session.id, approval_id=approval.id, reason=REMOTE_CALL_INTERRUPTED))
    killed = kill_processes(run.id)
    if killed:
        log.warning("killed %d processes that run %s had left behind", killed, run.id)
    if session.can_resume_after_restart:
        assert session.state in states.ACTIVE, "a run that goes on is active"
        runs.start(lane, run.id)
        for approval in run.pending.values():
            runs.schedule_expiry(lane, approval)
    else:
        gone = lost if session.terminal is not None else None
        await lane.ask(commands.InterruptRun(session_id=session.id, run_id=run.id, reason=INTERRUPTED, lost=gone))
