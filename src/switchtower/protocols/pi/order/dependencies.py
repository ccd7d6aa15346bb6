"""What a command has to wait for before its turn means anything: section 9 of the document. Waits for nothing itself."""

from collections.abc import Callable

from switchtower.protocols.pi import strings
from switchtower.protocols.pi.order import lifecycle
from switchtower.protocols.pi.order.jobs import CommandJob, PendingCommand

Find = Callable[[CommandJob, str], PendingCommand | lifecycle.CommandOutcome | None]
"""What is known of a command with this id, among the clients that share ids with the one who asks."""


def collect_dependencies(job: CommandJob, find: Find) -> str | None:
    """What makes waiting pointless; `None`: `job.awaited` holds those that have yet to end."""
    wanted = dict.fromkeys(job.request.depends_on)
    if job.request.id in wanted:
        return strings.format_self_dependency(job.request.id)
    for id_ in wanted:
        known = find(job, id_)
        if known is None:
            return strings.format_dependency_unknown(id_)
        if isinstance(known, lifecycle.CommandOutcome):
            if not known.success:
                return strings.format_dependency_failed(id_, str(known.error))
        elif known is job:
            return strings.format_self_dependency(id_)
        elif known.lane is not None and known.lane is job.lane:
            # pi-server 9.2: it cannot get its turn while this one waits. One whose lane has gone on can be awaited.
            return strings.format_dependency_in_lane(id_)
        else:
            job.awaited[id_] = known
    return None
