"""What a command has to wait for before its turn means anything: section 9 of the document. Waits for nothing itself."""

from collections.abc import Callable

from switchtower.protocols.pi import strings
from switchtower.protocols.pi.order import lifecycle
from switchtower.protocols.pi.order.jobs import Job, Pending

Find = Callable[[Job, str], Pending | lifecycle.Outcome | None]
"""What is known of a command with this id, among the clients that share ids with the one who asks."""


def gather(job: Job, find: Find) -> str | None:
    """What makes waiting pointless; `None`: `job.awaited` holds those that have yet to end."""
    wanted = dict.fromkeys(job.request.depends_on)
    if job.request.id in wanted:
        return strings.depends_on_itself(job.request.id)
    for id_ in wanted:
        known = find(job, id_)
        if known is None:
            return strings.dependency_unknown(id_)
        if isinstance(known, lifecycle.Outcome):
            if not known.success:
                return strings.dependency_failed(id_, str(known.error))
        elif known is job:
            return strings.depends_on_itself(id_)
        elif known.lane is not None and known.lane is job.lane:
            # pi-server 9.2: it cannot get its turn while this one waits. One whose lane has gone on can be awaited.
            return strings.dependency_in_lane(id_)
        else:
            job.awaited[id_] = known
    return None
