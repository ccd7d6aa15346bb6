"""The source and the target of a copy, for every kind of store. A row of the journal is the same in all of them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from switchtower.stores import packed_rows
from switchtower.stores.audit import AuditLink

OWNER_TOKEN = "owner_token"  # noqa: S105 - its name
JWT_SECRET = "jwt_secret"  # noqa: S105 - its name
SECRET_FILES = {
    OWNER_TOKEN: "owner.token",
    JWT_SECRET: "jwt.secret",
    "webpush.key": "webpush.key",
    "webpush.json": "webpush.json",
}
"""The secrets that logins and notifications depend on: their names between nodes, and their files in a home."""

ReceiptRow = tuple[str, str, str, bytes, int, int]
"""Scope, key, fingerprint, outcome, the time of recording and the time of expiry."""
RecordRow = tuple[Any, ...]
"""A row of the registry."""


class TransferTable(NamedTuple):
    columns: tuple[str, ...]
    key: int
    """The number of leading columns that the table is ordered by."""


REGISTRY = {
    "users": TransferTable(("name", "password_hash", "created_at_ms", "last_login_at_ms", "role"), 1),
    "tokens": TransferTable(
        (
            *("token_id", "user", "created_at_ms", "expires_at_ms", "client", "revoked_at_ms"),
            *("name", "scope", "secret_sha256", "last_used_ms"),
        ),
        1,
    ),
    "hosts": TransferTable(("host_id", "name", "state", "first_seen_ms", "last_seen_ms", "address", "token_sha256"), 1),
    "hubs": TransferTable(("hub", "since_ms"), 1),
    "marks": TransferTable(("hub", "session_id", "acked_seq", "settled_at_ms"), 2),
}


class TransferError(Exception):
    """The reason why a store was not copied, with a remedy."""

    def __init__(self, problem: str, *, hint: str) -> None:
        super().__init__(f"{problem}; hint: {hint}")
        self.problem = problem
        self.hint = hint


class SessionRow(Struct, frozen=True):
    """All of a session but its entries and its snapshot. The `sid` is copied too: it decides the order of sessions of equal
    age.
    """

    sid: int
    session_id: str
    epoch: int
    head: int
    """The seq of its last entry; 0 for a session whose entries were all removed."""
    state: str
    created_at_ms: int
    updated_at_ms: int
    loaded: bool
    pruned_through: int
    card: bytes
    snapshot_seq: int | None


class StoreSource(Protocol):
    async def count_sessions(self) -> int:
        """Returns the number of sessions."""
        ...

    async def read_sessions(self, after_sid: int, limit: int) -> list[SessionRow]:
        """Returns sessions in the order of their `sid`."""
        ...

    async def find_session(self, session_id: str) -> SessionRow | None: ...

    async def read_snapshot(self, sid: int) -> bytes | None: ...

    def read_events(self, sid: int, after_seq: int) -> AsyncIterator[list[packed_rows.PackedRow]]:
        """Yields pages that are bounded by rows and bytes."""
        ...

    def read_receipts(self) -> AsyncIterator[list[ReceiptRow]]:
        """Yields receipts in any order."""
        ...

    def read_records(self, table: str) -> AsyncIterator[list[RecordRow]]:
        """Yields the rows of one table of `REGISTRY`, in any order."""
        ...

    def read_links(self, chain: str) -> AsyncIterator[list[AuditLink]]:
        """Yields the links of the audit, in order."""
        ...

    async def read_chain_head(self, chain: str) -> tuple[int, bytes] | None: ...

    async def read_secrets(self) -> dict[str, bytes]: ...


class StoreTarget(StoreSource, Protocol):
    """A target that is built in a separate place. Its content is not visible before `activate`."""

    async def delete_session(self, sid: int) -> None:
        """Deletes everything of a session."""
        ...

    async def put_events(self, sid: int, rows: Sequence[packed_rows.PackedRow]) -> None: ...

    async def put_session(self, session: SessionRow, snapshot: bytes | None) -> None:
        """Stores a session after its entries, and before the next commit: a session that exists in the target is complete."""
        ...

    async def clear_receipts(self) -> None: ...

    async def put_receipts(self, receipts: Sequence[ReceiptRow]) -> None: ...

    async def clear_records(self) -> None: ...

    async def put_records(self, table: str, records: Sequence[RecordRow]) -> None: ...

    async def clear_chain(self, chain: str) -> None: ...

    async def put_links(self, chain: str, links: Sequence[AuditLink]) -> None: ...

    async def put_chain_head(self, chain: str, number: int, hash_: bytes) -> None: ...

    async def put_secrets(self, secrets: Mapping[str, bytes]) -> None: ...

    async def commit(self) -> None:
        """Everything that was put so far survives a kill."""
        ...

    async def activate(self) -> None:
        """Makes the target the store, durably and atomically."""
        ...
