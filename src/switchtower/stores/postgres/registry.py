"""The registry in PostgreSQL, shared by all nodes. It uses one connection, so that changes are applied in the order of the
calls; no state is kept between two of them.

Secrets that all nodes share: the node that needs one first creates it, and the others read it.

A value is never logged, and no error quotes it. Every user that can read the database can read it."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from switchtower.core import errors, roles
from switchtower.core.ports import journal, registry
from switchtower.stores.postgres import database
from switchtower.stores.postgres.database import PostgresConnection, escape_nul, unescape_nul
from switchtower.stores.postgres.pool import Pool

RETRY_TIMEOUT = 5.0


class PostgresSecrets:
    """Raises `errors.JournalUnavailable` when the database fails."""

    def __init__(self, dsn: str, *, timeout: float = RETRY_TIMEOUT) -> None:
        self._dsn = dsn
        self._timeout = timeout
        self._pool: Pool | None = None

    async def open(self) -> None:
        pool = Pool(self._dsn, most=1, timeout=self._timeout)
        with database.translate_errors():
            await pool.open(database.migrate)
        self._pool = pool

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def read(self, name: str) -> bytes | None:
        with database.translate_errors():
            rows = await self._get_pool().fetch("SELECT value FROM secrets WHERE name = $1", database.escape_nul(name))
        return rows[0][0] or None if rows else None

    async def update(self, name: str, update: Callable[[bytes | None], bytes]) -> None:
        """Changes a value atomically: no other node changes it between the argument and the result of `update`, which may be
        called more than once.
        """

        async def work(connection: PostgresConnection) -> None:
            # Creates a row to lock, also for the first change: an empty value counts as none.
            await connection.execute(
                "INSERT INTO secrets VALUES ($1, $2, now()) ON CONFLICT (name) DO NOTHING", database.escape_nul(name), b""
            )
            kept = await connection.fetchval("SELECT value FROM secrets WHERE name = $1 FOR UPDATE", database.escape_nul(name))
            await connection.execute(
                "UPDATE secrets SET value = $2 WHERE name = $1", database.escape_nul(name), update(kept or None)
            )

        with database.translate_errors():
            await self._get_pool().run_transaction(work)

    def _get_pool(self) -> Pool:
        if self._pool is None:
            raise errors.JournalUnavailable("it is not open")
        return self._pool

    async def get_or_create(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Returns the value of this name. When nodes create one at once, all get the first one's."""
        pool = self._get_pool()

        async def work(connection: PostgresConnection) -> bytes:
            value: bytes | None = await connection.fetchval(
                "SELECT value FROM secrets WHERE name = $1", database.escape_nul(name)
            )
            if value is not None:
                return value
            made = make()
            if not isinstance(made, bytes):  # the library's own message would quote it
                raise TypeError(f"the secret `{name}` was not made as bytes")
            await connection.execute(
                "INSERT INTO secrets VALUES ($1, $2, now()) ON CONFLICT (name) DO NOTHING", database.escape_nul(name), made
            )
            value = await connection.fetchval("SELECT value FROM secrets WHERE name = $1", database.escape_nul(name))
            assert value is not None, "nobody takes a secret back"
            return value

        with database.translate_errors():
            return await pool.run_transaction(work)


Result = TypeVar("Result")

_NEW_HOSTS_LOCK = 0x746F776572_02

_USER = "SELECT name, password_hash, created_at_ms, last_login_at_ms, role FROM users"
_TOKEN = (
    "SELECT token_id, owner, created_at_ms, expires_at_ms, client, revoked_at_ms, name, scope, secret_sha256, last_used_ms"  # noqa: S105
    " FROM tokens"
)
_HOST = "SELECT host_id, name, state, first_seen_ms, last_seen_ms, address, token_sha256 FROM hosts"


class PostgresRegistry:
    """Implements `registry.Registry`. Between `open` and `close` it belongs to the event loop that opened it."""

    def __init__(self, dsn: str, *, timeout: float = RETRY_TIMEOUT) -> None:
        self._dsn = dsn
        self._timeout = timeout
        self._pool: Pool | None = None

    async def open(self) -> None:
        if self._pool is not None:
            return
        pool = Pool(self._dsn, most=1, timeout=self._timeout)
        with _translate_errors():
            await pool.open(database.migrate)
        self._pool = pool

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _run_transaction(self, work: Callable[[PostgresConnection], Awaitable[Result]]) -> Result:
        """Runs one transaction."""
        if self._pool is None:
            raise registry.RegistryUnavailable("it is not open")
        with _translate_errors():
            return await self._pool.run_transaction(work)

    async def _execute_change(self, query: str, *values: Any, note: journal.AuditNote | None = None) -> int:
        """Returns how many rows one statement changed."""

        async def work(connection: PostgresConnection) -> int:
            changed = _parse_count(await connection.execute(query, *values))
            if changed:
                await _insert_note(connection, note)
            return changed

        return await self._run_transaction(work)

    async def _fetch_rows(self, query: str, *values: Any) -> list[Any]:
        if self._pool is None:
            raise registry.RegistryUnavailable("it is not open")
        with _translate_errors():
            return await self._pool.fetch(query, *values)

    async def add_user(self, user: registry.User, *, note: journal.AuditNote | None = None) -> bool:
        query = "INSERT INTO users VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING"
        values = (
            escape_nul(user.name),
            escape_nul(user.password_hash),
            user.created_at_ms,
            user.last_login_at_ms,
            user.role.value,
        )
        return await self._execute_change(query, *values, note=note) > 0

    async def find_user(self, name: str) -> registry.User | None:
        rows = await self._fetch_rows(f"{_USER} WHERE name = $1", escape_nul(name))
        return _make_user(rows[0]) if rows else None

    async def list_users(self) -> list[registry.User]:
        return sorted(map(_make_user, await self._fetch_rows(_USER)), key=lambda user: user.name)

    async def set_role(
        self, name: str, role: roles.Role, *, keep_admin: bool = False, note: journal.AuditNote | None = None
    ) -> bool:
        async def work(connection: PostgresConnection) -> bool:
            if keep_admin and role is not roles.Role.ADMIN:
                await _check_not_last(connection, name)
            query = "UPDATE users SET role = $2 WHERE name = $1"
            changed = _parse_count(await connection.execute(query, escape_nul(name), role.value)) > 0
            if changed:
                await _insert_note(connection, note)
            return changed

        return await self._run_transaction(work)

    async def set_password(self, name: str, password_hash: str, now_ms: int, *, note: journal.AuditNote | None = None) -> bool:
        async def work(connection: PostgresConnection) -> bool:
            query = "UPDATE users SET password_hash = $2 WHERE name = $1"
            changed = _parse_count(await connection.execute(query, escape_nul(name), escape_nul(password_hash))) > 0
            if changed:
                await _revoke_all(connection, name, now_ms)
                await _insert_note(connection, note)
            return changed

        return await self._run_transaction(work)

    async def replace_hash(self, name: str, old_hash: str, new_hash: str) -> bool:
        query = "UPDATE users SET password_hash = $1 WHERE name = $2 AND password_hash = $3"
        return await self._execute_change(query, escape_nul(new_hash), escape_nul(name), escape_nul(old_hash)) > 0

    async def remove_user(
        self, name: str, now_ms: int, *, keep_admin: bool = False, note: journal.AuditNote | None = None
    ) -> bool:
        async def work(connection: PostgresConnection) -> bool:
            if keep_admin:
                await _check_not_last(connection, name)
            removed = _parse_count(await connection.execute("DELETE FROM users WHERE name = $1", escape_nul(name))) > 0
            if removed:
                await _revoke_all(connection, name, now_ms)
                await _insert_note(connection, note)
            return removed

        return await self._run_transaction(work)

    async def add_token(
        self, token: registry.Token, *, checked_hash: str | None = None, note: journal.AuditNote | None = None
    ) -> bool:
        async def work(connection: PostgresConnection) -> bool:
            if checked_hash is not None:
                login = "UPDATE users SET last_login_at_ms = $1 WHERE name = $2 AND password_hash = $3"
                if not _parse_count(
                    await connection.execute(login, token.created_at_ms, escape_nul(token.user), escape_nul(checked_hash))
                ):
                    return False
            await connection.execute(
                "INSERT INTO tokens VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
                *(escape_nul(token.token_id), escape_nul(token.user), token.created_at_ms, token.expires_at_ms),
                *(escape_nul(token.client), token.revoked_at_ms, escape_nul(token.name)),
                *(None if token.scope is None else token.scope.value, token.secret_sha256, token.last_used_ms),
            )
            await _insert_note(connection, note)
            return True

        return await self._run_transaction(work)

    async def find_token(self, token_id: str) -> registry.Token | None:
        rows = await self._fetch_rows(f"{_TOKEN} WHERE token_id = $1", escape_nul(token_id))
        return _make_token(rows[0]) if rows else None

    async def list_tokens(self, now_ms: int, *, limit: int, user: str | None = None) -> list[registry.Token]:
        rows = await self._fetch_rows(
            f"{_TOKEN} WHERE expires_at_ms > $1 AND revoked_at_ms IS NULL AND ($2::text IS NULL OR owner = $2)"
            " ORDER BY created_at_ms DESC, token_id DESC LIMIT $3",
            *(now_ms, None if user is None else escape_nul(user), limit),
        )
        return [_make_token(row) for row in rows]

    async def use_token(self, token_id: str, now_ms: int) -> None:
        query = "UPDATE tokens SET last_used_ms = greatest(last_used_ms, $1) WHERE token_id = $2"
        await self._execute_change(query, now_ms, escape_nul(token_id))

    async def revoke_token(self, token_id: str, now_ms: int, *, note: journal.AuditNote | None = None) -> bool:
        query = "UPDATE tokens SET revoked_at_ms = $1 WHERE token_id = $2 AND revoked_at_ms IS NULL AND expires_at_ms > $1"
        return await self._execute_change(query, now_ms, escape_nul(token_id), note=note) > 0

    async def revoke_tokens(self, user: str, now_ms: int) -> int:
        return await self._run_transaction(lambda connection: _revoke_all(connection, user, now_ms))

    async def prune_tokens(self, now_ms: int) -> int:
        return await self._execute_change("DELETE FROM tokens WHERE expires_at_ms <= $1", now_ms)

    async def record_contact(
        self, visit: registry.HostContact, *, first_state: registry.HostState, most: int
    ) -> registry.Host | None:
        return await self._run_transaction(lambda connection: _record_contact(connection, visit, first_state, most))

    async def touch_host(self, host_id: str, now_ms: int) -> bool:
        query = "UPDATE hosts SET last_seen_ms = greatest(last_seen_ms, $1) WHERE host_id = $2"
        return await self._execute_change(query, now_ms, escape_nul(host_id)) > 0

    async def find_host(self, host_id: str) -> registry.Host | None:
        rows = await self._fetch_rows(f"{_HOST} WHERE host_id = $1", escape_nul(host_id))
        return _make_host(rows[0]) if rows else None

    async def list_hosts(self) -> list[registry.Host]:
        return [_make_host(row) for row in await self._fetch_rows(f"{_HOST} ORDER BY first_seen_ms, host_id")]

    async def set_host_state(self, host_id: str, state: registry.HostState, *, note: journal.AuditNote | None = None) -> bool:
        query = "UPDATE hosts SET state = $1 WHERE host_id = $2"
        return await self._execute_change(query, state.value, escape_nul(host_id), note=note) > 0

    async def rename_host(self, host_id: str, name: str, *, note: journal.AuditNote | None = None) -> bool:
        query = "UPDATE hosts SET name = $1 WHERE host_id = $2"
        return await self._execute_change(query, escape_nul(name), escape_nul(host_id), note=note) > 0

    async def forget_host_token(self, host_id: str, *, note: journal.AuditNote | None = None) -> bool:
        query = "UPDATE hosts SET token_sha256 = NULL WHERE host_id = $1"
        return await self._execute_change(query, escape_nul(host_id), note=note) > 0

    async def remove_host(self, host_id: str, *, note: journal.AuditNote | None = None) -> bool:
        return await self._execute_change("DELETE FROM hosts WHERE host_id = $1", escape_nul(host_id), note=note) > 0

    async def record_note(self, note: journal.AuditNote) -> None:
        await self._run_transaction(lambda connection: _insert_note(connection, note))

    async def list_notes(self, limit: int, *, before: int | None = None) -> list[tuple[int, journal.AuditNote]]:
        rows = await self._fetch_rows(
            "SELECT number, record FROM audit WHERE chain = 'accounts' AND number < $1 ORDER BY number DESC LIMIT $2",
            *(2**62 if before is None else before, limit),
        )
        return [(number, _decode_note(record)) for number, record in rows]

    async def record_hub(self, hub: str, now_ms: int) -> int:
        await self._execute_change("INSERT INTO hubs VALUES ($1, $2) ON CONFLICT DO NOTHING", escape_nul(hub), now_ms)
        return int((await self._fetch_rows("SELECT since_ms FROM hubs WHERE hub = $1", escape_nul(hub)))[0][0])

    async def load_acknowledgements(self, hub: str) -> dict[str, tuple[int, int]]:
        rows = await self._fetch_rows("SELECT session_id, acked_seq, settled_at_ms FROM marks WHERE hub = $1", escape_nul(hub))
        return {unescape_nul(session_id): (acked_seq, settled_at_ms) for session_id, acked_seq, settled_at_ms in rows}

    async def store_acknowledgements(self, hub: str, marks: Sequence[tuple[str, int, int]]) -> None:
        # One statement cannot write a row twice, so the last mark of a session wins. Sorted, so that nodes never deadlock.
        last_words = sorted({escape_nul(session_id): (acked, settled) for session_id, acked, settled in marks}.items())
        if last_words:
            await self._execute_change(
                "INSERT INTO marks SELECT $1, * FROM unnest($2::text[], $3::bigint[], $4::bigint[])"
                " ON CONFLICT (hub, session_id) DO UPDATE"
                " SET acked_seq = excluded.acked_seq, settled_at_ms = excluded.settled_at_ms",
                *(escape_nul(hub), [session_id for session_id, _ in last_words]),
                *([acked for _, (acked, _) in last_words], [settled for _, (_, settled) in last_words]),
            )


def _parse_count(status: str) -> int:
    """Parses the number of rows from the server's status: `UPDATE 3`, `INSERT 0 1`."""
    return int(status.rpartition(" ")[2])


_encode_note = msgspec.json.Encoder().encode
_decode_note = msgspec.json.Decoder(journal.AuditNote).decode


async def _insert_note(connection: PostgresConnection, note: journal.AuditNote | None) -> None:
    if note is not None:
        await connection.execute(
            "SELECT extend_audit('accounts', $1, '', 0, $2, $3, true)", note.ts_ms, note.kind, _encode_note(note)
        )


async def _check_not_last(connection: PostgresConnection, name: str) -> None:
    admins = await connection.fetch("SELECT name FROM users WHERE role = 'admin' FOR UPDATE")
    if [admin for (admin,) in admins] == [escape_nul(name)]:
        raise registry.LastAdmin


async def _revoke_all(connection: PostgresConnection, user: str, now_ms: int) -> int:
    query = "UPDATE tokens SET revoked_at_ms = $1 WHERE owner = $2 AND revoked_at_ms IS NULL AND expires_at_ms > $1"
    return _parse_count(await connection.execute(query, now_ms, escape_nul(user)))


async def _record_contact(
    connection: PostgresConnection, visit: registry.HostContact, first_state: registry.HostState, most: int
) -> registry.Host | None:
    # The number of known hosts is limited, and two nodes may each be contacted by a new one now.
    await connection.execute(f"SELECT pg_advisory_xact_lock({_NEW_HOSTS_LOCK})")
    host_id = escape_nul(visit.host_id)
    if not await connection.fetchval("SELECT true FROM hosts WHERE host_id = $1", host_id):
        if await connection.fetchval("SELECT count(*) FROM hosts") >= most:
            made_room = await connection.execute(
                "DELETE FROM hosts WHERE host_id ="
                " (SELECT host_id FROM hosts WHERE state = 'pending' ORDER BY last_seen_ms, host_id LIMIT 1)"
            )
            if not _parse_count(made_room):
                return None
        await connection.execute(
            "INSERT INTO hosts VALUES ($1, $2, $3, $4, $4, $5, $6)",
            *(host_id, escape_nul(visit.name or visit.host_id), first_state.value, visit.at_ms, escape_nul(visit.address)),
            escape_nul(visit.token_sha256),
        )
    else:
        await connection.execute(
            "UPDATE hosts SET token_sha256 = $1, last_seen_ms = greatest(last_seen_ms, $2)"
            " WHERE host_id = $3 AND (token_sha256 IS NULL OR token_sha256 = $1)",
            *(escape_nul(visit.token_sha256), visit.at_ms, host_id),
        )
    return _make_host(await connection.fetchrow(f"{_HOST} WHERE host_id = $1", host_id))


def _make_user(row: Any) -> registry.User:
    name, password_hash, created_at_ms, last_login_at_ms, role = row
    return registry.User(unescape_nul(name), unescape_nul(password_hash), created_at_ms, last_login_at_ms, roles.parse_role(role))


def _make_token(row: Any) -> registry.Token:
    token_id, owner, created_at_ms, expires_at_ms, client, revoked_at_ms, name, scope, secret_sha256, last_used_ms = row
    return registry.Token(
        *(unescape_nul(token_id), unescape_nul(owner), created_at_ms, expires_at_ms, unescape_nul(client), revoked_at_ms),
        *(unescape_nul(name), None if scope is None else roles.parse_role(scope), secret_sha256, last_used_ms),
    )


def _make_host(row: Any) -> registry.Host:
    host_id, name, state, first_seen_ms, last_seen_ms, address, token_sha256 = row
    token = None if token_sha256 is None else unescape_nul(token_sha256)
    return registry.Host(
        unescape_nul(host_id),
        unescape_nul(name),
        registry.HostState(state),
        first_seen_ms,
        last_seen_ms,
        unescape_nul(address),
        token_sha256=token,
    )


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """Our own bugs are passed on unchanged."""
    try:
        yield
    except errors.JournalUnavailable as problem:  # a migration reports with this that the schema belongs to a newer program
        raise registry.RegistryUnavailable(problem.detail or "", hint=problem.hint) from problem
    except Exception as problem:
        if not database.is_database_error(problem):
            raise
        raise registry.RegistryUnavailable(database.summarize_error(problem)) from problem
