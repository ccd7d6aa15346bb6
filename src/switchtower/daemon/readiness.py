"""Why a load balancer should send nobody to a node, in words. Pure: whoever knows how things stand passes it in."""

from msgspec import Struct


class NodeReadiness(Struct, frozen=True):
    """How one of several nodes stands. As it begins, all is well."""

    draining: bool = False
    database_answers: bool = True
    lease_holds: bool = True
    """Whether it said in time that it is there. Once it did not, others may have its sessions."""


def list_unready_reasons(standing: NodeReadiness) -> list[str]:
    reasons = []
    if standing.draining:
        reasons.append("the node is draining")
    if not standing.database_answers:
        reasons.append("the database does not answer")
    if not standing.lease_holds:
        reasons.append("the node's lease has lapsed")
    return reasons
