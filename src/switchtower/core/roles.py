"""The permissions of users: four roles, each with everything that the one before it has, and one table from an action to the
least role that it needs; and the access of a connection, as the daemon established it. Pure. Each protocol has a table from
its requests to these actions.

An action or a request without a row needs an admin: a forgotten row refuses rather than allows.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from switchtower.core import errors, events
from switchtower.core.policy.rules import PROFILES


class Role(StrEnum):
    VIEWER = "viewer"
    """Lists, watches and reads."""
    APPROVER = "approver"
    """Decides approvals and answers dialogs, one at a time."""
    OPERATOR = "operator"
    """Starts, steers, types, stops, undoes, renames, forks and deletes."""
    ADMIN = "admin"
    """Manages users, tokens, hosts and nodes, reads the audit, and loosens the policy."""

    def covers(self, needed: "Role") -> bool:
        return RANKS[self] >= RANKS[needed]


RANKS: Mapping[Role, int] = {role: rank for rank, role in enumerate(Role)}
NEW_USER = Role.OPERATOR
"""The role of a user that was added without one."""


class Action(StrEnum):
    WATCH = "watch"
    DECIDE = "decide an approval"
    ANSWER = "answer a dialog"
    ALLOW_ALWAYS = "allow something for the whole session"
    START = "start a session"
    SEND = "send a message"
    TYPE = "type into a terminal"
    STOP = "stop a run"
    ACT = "act in a workspace"
    CONFIGURE = "configure a session"
    RESTORE = "undo or redo"
    FORK = "fork a session"
    DELETE = "delete a session"
    READ_LOGS = "read the daemon's log"
    TRUST = "trust a folder"
    LOOSEN_POLICY = "loosen the policy"
    MANAGE_USERS = "manage users"
    MANAGE_TOKENS = "manage tokens"
    MANAGE_HOSTS = "manage hosts"
    MANAGE_NODES = "manage nodes"
    READ_AUDIT = "read the audit"


LEAST_ROLES: Mapping[Action, Role] = {
    Action.WATCH: Role.VIEWER,
    Action.DECIDE: Role.APPROVER,
    Action.ANSWER: Role.APPROVER,
    # A permanent permission changes what the session asks about from then on; one decision does not.
    Action.ALLOW_ALWAYS: Role.OPERATOR,
    Action.START: Role.OPERATOR,
    Action.SEND: Role.OPERATOR,
    Action.TYPE: Role.OPERATOR,
    Action.STOP: Role.OPERATOR,
    Action.ACT: Role.OPERATOR,
    Action.CONFIGURE: Role.OPERATOR,
    Action.RESTORE: Role.OPERATOR,
    Action.FORK: Role.OPERATOR,
    Action.DELETE: Role.OPERATOR,
    Action.READ_LOGS: Role.OPERATOR,
    # Trust makes the folder's instructions, skills and servers effective.
    Action.TRUST: Role.ADMIN,
    Action.LOOSEN_POLICY: Role.ADMIN,
    Action.MANAGE_USERS: Role.ADMIN,
    Action.MANAGE_TOKENS: Role.ADMIN,
    Action.MANAGE_HOSTS: Role.ADMIN,
    Action.MANAGE_NODES: Role.ADMIN,
    Action.READ_AUDIT: Role.ADMIN,
}


def find_least_role(action: Action | None) -> Role:
    """None represents a request that no table knows."""
    return Role.ADMIN if action is None else LEAST_ROLES.get(action, Role.ADMIN)


def choose_lower_role(one: Role, other: Role) -> Role:
    return min(one, other, key=RANKS.__getitem__)


def parse_role(text: str) -> Role:
    """Parses a stored role. One that this version does not know allows the least."""
    return Role(text) if text in RANKS else Role.VIEWER


def check_role(role: Role, action: Action | None) -> None:
    """Raises `errors.RoleForbidden`."""
    needed = find_least_role(action)
    if not role.covers(needed):
        what = "this" if action is None else f"to {action}"
        raise errors.RoleForbidden(f"{what} needs the role {needed}, and yours is {role}", hint="ask an admin")


def check_policy(role: Role, wanted: str | None, usual: str) -> None:
    """A session may be stricter than the daemon's setting; only an admin makes it looser. Raises `errors.RoleForbidden`."""
    if wanted in PROFILES and usual in PROFILES and PROFILES.index(wanted) > PROFILES.index(usual):
        check_role(role, Action.LOOSEN_POLICY)


class ProcessUnattributed(Exception):
    """The process at the other end cannot be attributed to the owner nor to a run. Its connection is refused."""


class Access(Struct, frozen=True):
    name: str
    via: str
    """The way the connection arrived, for provenance: `cli` for the owner's socket, `app` for WebSockets."""
    trusted: bool
    """The owner's connection: it may attach to any session without a token."""
    run_id: str | None = None
    """The run that has started the process at the other end. Such a process may not decide, nor act for the owner."""
    role: Role = Role.ADMIN
    """Each place in the daemon that makes an access names it. A node of the version before names none for its pi clients."""
    device: str = ""
    """The client's description of itself: its access token's name, its user agent."""
    address: str = ""
    """The machine that the connection came from."""

    @property
    def is_from_run(self) -> bool:
        return self.run_id is not None

    def make_actor(self, client: str | None = None) -> events.Actor:
        return events.Actor(
            name=self.name,
            via=self.via,
            client=client,
            device=self.device or None,
            address=self.address or None,
            run_id=self.run_id,
        )

    def check_action(self, action: Action | None) -> None:
        """Raises `errors.RoleForbidden`."""
        check_role(self.role, action)
