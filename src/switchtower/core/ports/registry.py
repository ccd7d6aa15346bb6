"""The registry port: who may come in (users, the tokens they were given, hosts), and how far each hub has what a host told it.

Stores implement it. Several processes may share one registry, so each method is one transaction that leaves nothing to be
remembered between two of them: what must hold together is asked for together.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from msgspec import Struct

from switchtower.core import roles
from switchtower.core.ports import journal

_USER_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")


def is_user_name(name: str) -> bool:
    return _USER_NAME.fullmatch(name) is not None


class RegistryUnavailable(Exception):
    """The registry of users and hosts cannot be used: what the disk or the database said, and a remedy if there is one."""

    def __init__(self, problem: str, *, hint: str | None = None) -> None:
        self.message = f"the registry of users and hosts cannot be used: {problem}"
        self.hint = hint
        super().__init__(f"{self.message}; hint: {hint}" if hint else self.message)


class LastAdmin(Exception):
    """The change would leave no user with the role admin."""


class User(Struct, frozen=True):
    name: str
    password_hash: str
    """argon2, in the PHC format."""
    created_at_ms: int
    last_login_at_ms: int | None = None
    role: roles.Role = roles.NEW_USER

    def __repr__(self) -> str:
        """Without the hash: a user may be logged, a hash may not."""
        return f"User(name={self.name!r})"


class Token(Struct, frozen=True):
    """An access token that was given out. Not the token itself: its id."""

    token_id: str
    user: str
    created_at_ms: int
    expires_at_ms: int
    client: str = ""
    """What it was given to, as far as that said."""
    revoked_at_ms: int | None = None
    name: str = ""
    """Of a token that was made for a program; a login has none."""
    scope: roles.Role | None = None
    """It allows no more than this role, whatever its user's is."""
    secret_sha256: str | None = None
    """Of a token that was made for a program, in hexadecimal digits. A login is signed instead."""
    last_used_ms: int | None = None

    def __repr__(self) -> str:
        return f"Token(token_id={self.token_id!r}, user={self.user!r}, name={self.name!r})"


class HostState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    REFUSED = "refused"


class Host(Struct, frozen=True):
    host_id: str
    name: str
    state: HostState
    first_seen_ms: int
    last_seen_ms: int
    address: str
    """Where it was when it came for the first time."""
    token_sha256: str | None
    """In hexadecimal digits. None: the next token that it comes with is trusted."""

    def __repr__(self) -> str:
        return f"Host(host_id={self.host_id!r}, name={self.name!r}, state={self.state.value!r})"


class HostContact(Struct, frozen=True):
    """A host at the door."""

    host_id: str
    token_sha256: str
    address: str
    at_ms: int
    name: str = ""
    """What it calls itself. Counts on its first visit only: later the owner may have named it."""

    def __repr__(self) -> str:
        return f"Visit(host_id={self.host_id!r}, address={self.address!r})"


class HubAcknowledgement(NamedTuple):
    """How much of a session a hub has acknowledged, and since when it has all of it (0: not yet)."""

    session_id: str
    acked_seq: int
    settled_at_ms: int


class Registry(Protocol):
    """All methods are safe to call from the event loop; what changes something is durable when it returns.

    Any of them raises `RegistryUnavailable` when the disk or the database fails it, and has then changed nothing. A `note` is
    added to the audit in the same transaction, and only if the change was made.
    """

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    # Users

    async def add_user(self, user: User, *, note: journal.AuditNote | None = None) -> bool:
        """False: there is one of this name, who stays as they are."""
        ...

    async def find_user(self, name: str) -> User | None: ...

    async def list_users(self) -> list[User]:
        """By name."""
        ...

    async def set_role(
        self, name: str, role: roles.Role, *, keep_admin: bool = False, note: journal.AuditNote | None = None
    ) -> bool:
        """False: there is no such user. Raises `LastAdmin` when `keep_admin` and no other user is an admin."""
        ...

    async def set_password(self, name: str, password_hash: str, now_ms: int, *, note: journal.AuditNote | None = None) -> bool:
        """The user's tokens are revoked with it. False: there is no such user."""
        ...

    async def replace_hash(self, name: str, old_hash: str, new_hash: str) -> bool:
        """The same password hashed anew, unless it has been changed meanwhile. The tokens stay."""
        ...

    async def remove_user(
        self, name: str, now_ms: int, *, keep_admin: bool = False, note: journal.AuditNote | None = None
    ) -> bool:
        """The user's tokens are revoked with it. False: there is no such user. Raises `LastAdmin` as `set_role` does."""
        ...

    # Tokens

    async def add_token(self, token: Token, *, checked_hash: str | None = None, note: journal.AuditNote | None = None) -> bool:
        """With the hash that a password was checked against, only if that is still the user's; the login is noted with it.

        So nobody gets a token for a password that was changed, or as a user who was removed, while it was being checked.
        """
        ...

    async def find_token(self, token_id: str) -> Token | None: ...

    async def list_tokens(self, now_ms: int, *, limit: int, user: str | None = None) -> list[Token]:
        """Those neither expired nor revoked, the newest first."""
        ...

    async def use_token(self, token_id: str, now_ms: int) -> None:
        """Its last-used time; it never goes back."""
        ...

    async def revoke_token(self, token_id: str, now_ms: int, *, note: journal.AuditNote | None = None) -> bool:
        """Whether it was good until now."""
        ...

    async def revoke_tokens(self, user: str, now_ms: int) -> int:
        """All of a user's; how many were good until now."""
        ...

    async def prune_tokens(self, now_ms: int) -> int:
        """Forgets those that have expired; how many."""
        ...

    # Hosts

    async def record_contact(self, visit: HostContact, *, first_state: HostState, most: int) -> Host | None:
        """The host as it stands after this visit.

        One that is new is noted in `first_state`. One without a token is given the visit's. One whose token is the visit's has
        been seen. With another token nothing changes: the caller compares. When `most` hosts are known already, a new one
        takes the place of the pending one that was not seen for longest; None when none is pending.
        """
        ...

    async def touch_host(self, host_id: str, now_ms: int) -> bool:
        """Its last-seen time; it never goes back."""
        ...

    async def find_host(self, host_id: str) -> Host | None: ...

    async def list_hosts(self) -> list[Host]:
        """In the order in which they first came."""
        ...

    async def set_host_state(self, host_id: str, state: HostState, *, note: journal.AuditNote | None = None) -> bool: ...

    async def rename_host(self, host_id: str, name: str, *, note: journal.AuditNote | None = None) -> bool: ...

    async def forget_host_token(self, host_id: str, *, note: journal.AuditNote | None = None) -> bool:
        """The next token that it comes with is trusted."""
        ...

    async def remove_host(self, host_id: str, *, note: journal.AuditNote | None = None) -> bool: ...

    # The audit

    async def record_note(self, note: journal.AuditNote) -> None:
        """Adds what changes nothing here, such as a refused login."""
        ...

    async def list_notes(self, limit: int, *, before: int | None = None) -> list[tuple[int, journal.AuditNote]]:
        """With their numbers in the audit, the newest first."""
        ...

    # What a host has told its hubs

    async def record_hub(self, hub: str, now_ms: int) -> int:
        """When the first link with this hub was made: now, if never before."""
        ...

    async def load_acknowledgements(self, hub: str) -> dict[str, tuple[int, int]]:
        """The acknowledged seq and the settling time of each session that was marked."""
        ...

    async def store_acknowledgements(self, hub: str, marks: Sequence[tuple[str, int, int]]) -> None:
        """All of them (`Mark`s, or plain triples) or none. The last word on a session stands."""
        ...
