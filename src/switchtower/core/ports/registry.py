"""The registry port: users, their access tokens, hosts, and how much each hub has acknowledged.

Stores implement it. Several processes may share one registry, so each method is one transaction and no state is kept between
two of them: what must be consistent is requested together.
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
    """The registry of users and hosts cannot be used; it has the error of the disk or the database, and a remedy if there is
    one.
    """

    def __init__(self, problem: str, *, hint: str | None = None) -> None:
        self.message = f"the registry of users and hosts cannot be used: {problem}"
        self.hint = hint
        super().__init__(f"{self.message}; hint: {hint}" if hint else self.message)


class LastAdmin(Exception):
    """The change would leave no user with the role admin."""


class User(Struct, frozen=True):
    name: str
    password_hash: str
    """An argon2 hash in the PHC format."""
    created_at_ms: int
    last_login_at_ms: int | None = None
    role: roles.Role = roles.NEW_USER

    def __repr__(self) -> str:
        """Leaves out the hash: a user may be logged, a hash may not."""
        return f"User(name={self.name!r})"


class Token(Struct, frozen=True):
    """An issued access token: its id, not the token itself."""

    token_id: str
    user: str
    created_at_ms: int
    expires_at_ms: int
    client: str = ""
    """The client that it was issued to, as far as the client named itself."""
    revoked_at_ms: int | None = None
    name: str = ""
    """The name of a token that was made for a program; a login has none."""
    scope: roles.Role | None = None
    """The token allows no more than this role, whatever its user's role is."""
    secret_sha256: str | None = None
    """The hash of a token that was made for a program, in hexadecimal digits. A login is signed instead."""
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
    """The address of its first connection."""
    token_sha256: str | None
    """A hash in hexadecimal digits. None: the next token that the host connects with is trusted."""

    def __repr__(self) -> str:
        return f"Host(host_id={self.host_id!r}, name={self.name!r}, state={self.state.value!r})"


class HostContact(Struct, frozen=True):
    """A host's attempt to connect."""

    host_id: str
    token_sha256: str
    address: str
    at_ms: int
    name: str = ""
    """The name that the host gives itself. It counts on the first contact only: later the owner may have renamed the host."""

    def __repr__(self) -> str:
        return f"Visit(host_id={self.host_id!r}, address={self.address!r})"


class HubAcknowledgement(NamedTuple):
    """The seq up to which a hub has acknowledged a session, and since when it has all of it (0: not yet)."""

    session_id: str
    acked_seq: int
    settled_at_ms: int


class Registry(Protocol):
    """All methods are safe to call from the event loop; a change is durable when its method returns.

    Any of them raises `RegistryUnavailable` when the disk or the database fails, and has then changed nothing. A `note` is
    added to the audit in the same transaction, and only if the change was made.
    """

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    # Users

    async def add_user(self, user: User, *, note: journal.AuditNote | None = None) -> bool:
        """False: a user of this name exists, and stays unchanged."""
        ...

    async def find_user(self, name: str) -> User | None: ...

    async def list_users(self) -> list[User]:
        """Lists the users by name."""
        ...

    async def set_role(
        self, name: str, role: roles.Role, *, keep_admin: bool = False, note: journal.AuditNote | None = None
    ) -> bool:
        """False: the user does not exist. Raises `LastAdmin` when `keep_admin` and no other user is an admin."""
        ...

    async def set_password(self, name: str, password_hash: str, now_ms: int, *, note: journal.AuditNote | None = None) -> bool:
        """Also revokes the user's tokens. False: the user does not exist."""
        ...

    async def replace_hash(self, name: str, old_hash: str, new_hash: str) -> bool:
        """Stores another hash of the same password, unless it has been changed meanwhile. The tokens stay valid."""
        ...

    async def remove_user(
        self, name: str, now_ms: int, *, keep_admin: bool = False, note: journal.AuditNote | None = None
    ) -> bool:
        """Also revokes the user's tokens. False: the user does not exist. Raises `LastAdmin` as `set_role` does."""
        ...

    # Tokens

    async def add_token(self, token: Token, *, checked_hash: str | None = None, note: journal.AuditNote | None = None) -> bool:
        """With `checked_hash`, the hash that a password was checked against, the token is added only if that is still the
        user's hash; the login is recorded with it.

        So no client gets a token for a password that was changed, or as a user who was removed, while it was being checked.
        """
        ...

    async def find_token(self, token_id: str) -> Token | None: ...

    async def list_tokens(self, now_ms: int, *, limit: int, user: str | None = None) -> list[Token]:
        """Lists the tokens that are neither expired nor revoked, newest first."""
        ...

    async def use_token(self, token_id: str, now_ms: int) -> None:
        """Sets the token's last-used time, which never decreases."""
        ...

    async def revoke_token(self, token_id: str, now_ms: int, *, note: journal.AuditNote | None = None) -> bool:
        """Returns whether the token was valid until now."""
        ...

    async def revoke_tokens(self, user: str, now_ms: int) -> int:
        """Revokes all tokens of a user; returns how many were valid until now."""
        ...

    async def prune_tokens(self, now_ms: int) -> int:
        """Removes expired tokens; returns their number."""
        ...

    # Hosts

    async def record_contact(self, visit: HostContact, *, first_state: HostState, most: int) -> Host | None:
        """Returns the host after this contact.

        A new host is recorded in `first_state`. A host without a token gets the contact's. A host whose token is the contact's
        is marked as seen. With another token nothing changes: the caller compares. When `most` hosts are known already, a new
        one replaces the pending one that was not seen for longest; None when none is pending.
        """
        ...

    async def touch_host(self, host_id: str, now_ms: int) -> bool:
        """Sets the host's last-seen time, which never decreases."""
        ...

    async def find_host(self, host_id: str) -> Host | None: ...

    async def list_hosts(self) -> list[Host]:
        """Lists the hosts in the order of their first contact."""
        ...

    async def set_host_state(self, host_id: str, state: HostState, *, note: journal.AuditNote | None = None) -> bool: ...

    async def rename_host(self, host_id: str, name: str, *, note: journal.AuditNote | None = None) -> bool: ...

    async def forget_host_token(self, host_id: str, *, note: journal.AuditNote | None = None) -> bool:
        """The next token that the host connects with is trusted."""
        ...

    async def remove_host(self, host_id: str, *, note: journal.AuditNote | None = None) -> bool: ...

    # The audit

    async def record_note(self, note: journal.AuditNote) -> None:
        """Records an action that changes nothing here, such as a refused login."""
        ...

    async def list_notes(self, limit: int, *, before: int | None = None) -> list[tuple[int, journal.AuditNote]]:
        """Returns notes with their numbers in the audit, newest first."""
        ...

    # The acknowledgements of a host's hubs

    async def record_hub(self, hub: str, now_ms: int) -> int:
        """Returns when the first link with this hub was made: now, if never before."""
        ...

    async def load_acknowledgements(self, hub: str) -> dict[str, tuple[int, int]]:
        """Returns the acknowledged seq and the settling time of each recorded session."""
        ...

    async def store_acknowledgements(self, hub: str, marks: Sequence[tuple[str, int, int]]) -> None:
        """Stores all of them (`HubAcknowledgement`s, or plain triples) or none. The last one of a session wins."""
        ...
