"""The registry in a separate SQLite file, which several processes may have open at once.

One thread runs the writes and the long reads, each in a transaction that takes the file's lock first. A single row is read on
the event loop's own thread, which is faster than a hand-over; no state is kept between two calls.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from switchtower.core import errors, roles
from switchtower.core.ports import journal, registry
from switchtower.stores.sqlite import database, inspection

Result = TypeVar("Result")

SCRIPTS = "registry"
_LOCK_TIMEOUT_MS = 20_000
_OPEN_TRIES = 200
_OPEN_PAUSE = 0.01

_USER = "SELECT name, password_hash, created_at_ms, last_login_at_ms, role FROM users"
_TOKEN = (
    "SELECT token_id, user, created_at_ms, expires_at_ms, client, revoked_at_ms, name, scope, secret_sha256, last_used_ms"  # noqa: S105
    " FROM tokens"
)
_HOST = "SELECT host_id, name, state, first_seen_ms, last_seen_ms, address, token_sha256 FROM hosts"


class SqliteRegistry:
    """Implements `registry.Registry`. Between `open` and `close` it belongs to the event loop that opened it."""

    _writing: sqlite3.Connection
    _reading: sqlite3.Connection

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        thread = ThreadPoolExecutor(1, thread_name_prefix="registry")
        try:
            self._writing = await asyncio.get_running_loop().run_in_executor(thread, _open_registry, self._path)
            self._reading = database.open_for_reading(self._path)
        except BaseException as problem:
            thread.shutdown(wait=False)
            raise _translate_error(problem) from problem
        self._thread = thread

    async def close(self) -> None:
        if (thread := self._thread) is None:
            return
        self._thread = None
        self._reading.close()
        # It runs behind all submitted work, which is stored first.
        await asyncio.get_running_loop().run_in_executor(thread, self._writing.close)
        thread.shutdown(wait=False)

    async def _run_transaction(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Runs one transaction on the registry's thread. `work` must not return a cursor: that would be closed on another
        thread.
        """
        if self._thread is None:
            raise registry.RegistryUnavailable("it is not open")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, _run_in_transaction, self._writing, work)
        except (sqlite3.Error, OSError) as problem:
            raise _translate_error(problem) from problem

    async def _execute_change(self, sql: str, *values: object, note: journal.AuditNote | None = None) -> int:
        """Returns how many rows one statement changed."""

        def work(connection: sqlite3.Connection) -> int:
            changed = connection.execute(sql, values).rowcount
            if changed:
                _insert_note(connection, note)
            return changed

        return await self._run_transaction(work)

    def _fetch_row(self, sql: str, *values: object) -> tuple[Any, ...] | None:
        if self._thread is None:
            raise registry.RegistryUnavailable("it is not open")
        try:
            row: tuple[Any, ...] | None = self._reading.execute(sql, values).fetchone()
        except sqlite3.Error as problem:
            raise _translate_error(problem) from problem
        return row

    async def add_user(self, user: registry.User, *, note: journal.AuditNote | None = None) -> bool:
        values = (user.name, user.password_hash, user.created_at_ms, user.last_login_at_ms, user.role.value)
        return await self._execute_change("INSERT OR IGNORE INTO users VALUES (?, ?, ?, ?, ?)", *values, note=note) > 0

    async def find_user(self, name: str) -> registry.User | None:
        row = self._fetch_row(f"{_USER} WHERE name = ?", name)
        return _make_user(row) if row else None

    async def list_users(self) -> list[registry.User]:
        return await self._run_transaction(
            lambda connection: [_make_user(row) for row in connection.execute(f"{_USER} ORDER BY name")]
        )

    async def set_role(
        self, name: str, role: roles.Role, *, keep_admin: bool = False, note: journal.AuditNote | None = None
    ) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            if keep_admin and role is not roles.Role.ADMIN:
                _check_not_last(connection, name)
            changed = connection.execute("UPDATE users SET role = ? WHERE name = ?", (role.value, name)).rowcount > 0
            if changed:
                _insert_note(connection, note)
            return changed

        return await self._run_transaction(work)

    async def set_password(self, name: str, password_hash: str, now_ms: int, *, note: journal.AuditNote | None = None) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            changed = connection.execute("UPDATE users SET password_hash = ? WHERE name = ?", (password_hash, name)).rowcount > 0
            if changed:
                _revoke_all(connection, name, now_ms)
                _insert_note(connection, note)
            return changed

        return await self._run_transaction(work)

    async def replace_hash(self, name: str, old_hash: str, new_hash: str) -> bool:
        sql = "UPDATE users SET password_hash = ? WHERE name = ? AND password_hash = ?"
        return await self._execute_change(sql, new_hash, name, old_hash) > 0

    async def remove_user(
        self, name: str, now_ms: int, *, keep_admin: bool = False, note: journal.AuditNote | None = None
    ) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            if keep_admin:
                _check_not_last(connection, name)
            removed = connection.execute("DELETE FROM users WHERE name = ?", (name,)).rowcount > 0
            if removed:
                _revoke_all(connection, name, now_ms)
                _insert_note(connection, note)
            return removed

        return await self._run_transaction(work)

    async def add_token(
        self, token: registry.Token, *, checked_hash: str | None = None, note: journal.AuditNote | None = None
    ) -> bool:
        def work(connection: sqlite3.Connection) -> bool:
            if checked_hash is not None:
                login = "UPDATE users SET last_login_at_ms = ? WHERE name = ? AND password_hash = ?"
                if not connection.execute(login, (token.created_at_ms, token.user, checked_hash)).rowcount:
                    return False
            values = (
                *(token.token_id, token.user, token.created_at_ms, token.expires_at_ms, token.client, token.revoked_at_ms),
                *(token.name, token.scope, token.secret_sha256, token.last_used_ms),
            )
            connection.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            _insert_note(connection, note)
            return True

        return await self._run_transaction(work)

    async def find_token(self, token_id: str) -> registry.Token | None:
        row = self._fetch_row(f"{_TOKEN} WHERE token_id = ?", token_id)
        return _make_token(row) if row else None

    async def list_tokens(self, now_ms: int, *, limit: int, user: str | None = None) -> list[registry.Token]:
        sql = (
            f"{_TOKEN} WHERE expires_at_ms > ? AND revoked_at_ms IS NULL AND (? IS NULL OR user = ?)"
            " ORDER BY created_at_ms DESC, token_id DESC LIMIT ?"
        )
        return await self._run_transaction(
            lambda connection: [_make_token(row) for row in connection.execute(sql, (now_ms, user, user, limit))]
        )

    async def use_token(self, token_id: str, now_ms: int) -> None:
        await self._execute_change(
            "UPDATE tokens SET last_used_ms = max(coalesce(last_used_ms, 0), ?) WHERE token_id = ?", now_ms, token_id
        )

    async def revoke_token(self, token_id: str, now_ms: int, *, note: journal.AuditNote | None = None) -> bool:
        sql = "UPDATE tokens SET revoked_at_ms = ? WHERE token_id = ? AND revoked_at_ms IS NULL AND expires_at_ms > ?"
        return await self._execute_change(sql, now_ms, token_id, now_ms, note=note) > 0

    async def revoke_tokens(self, user: str, now_ms: int) -> int:
        return await self._run_transaction(lambda connection: _revoke_all(connection, user, now_ms))

    async def prune_tokens(self, now_ms: int) -> int:
        return await self._execute_change("DELETE FROM tokens WHERE expires_at_ms <= ?", now_ms)

    async def record_contact(
        self, visit: registry.HostContact, *, first_state: registry.HostState, most: int
    ) -> registry.Host | None:
        return await self._run_transaction(lambda connection: _record_contact(connection, visit, first_state, most))

    async def touch_host(self, host_id: str, now_ms: int) -> bool:
        return (
            await self._execute_change("UPDATE hosts SET last_seen_ms = max(last_seen_ms, ?) WHERE host_id = ?", now_ms, host_id)
            > 0
        )

    async def find_host(self, host_id: str) -> registry.Host | None:
        row = self._fetch_row(f"{_HOST} WHERE host_id = ?", host_id)
        return _make_host(row) if row else None

    async def list_hosts(self) -> list[registry.Host]:
        sql = f"{_HOST} ORDER BY first_seen_ms, host_id"
        return await self._run_transaction(lambda connection: [_make_host(row) for row in connection.execute(sql)])

    async def set_host_state(self, host_id: str, state: registry.HostState, *, note: journal.AuditNote | None = None) -> bool:
        return await self._execute_change("UPDATE hosts SET state = ? WHERE host_id = ?", state.value, host_id, note=note) > 0

    async def rename_host(self, host_id: str, name: str, *, note: journal.AuditNote | None = None) -> bool:
        return await self._execute_change("UPDATE hosts SET name = ? WHERE host_id = ?", name, host_id, note=note) > 0

    async def forget_host_token(self, host_id: str, *, note: journal.AuditNote | None = None) -> bool:
        return await self._execute_change("UPDATE hosts SET token_sha256 = NULL WHERE host_id = ?", host_id, note=note) > 0

    async def remove_host(self, host_id: str, *, note: journal.AuditNote | None = None) -> bool:
        return await self._execute_change("DELETE FROM hosts WHERE host_id = ?", host_id, note=note) > 0

    async def record_note(self, note: journal.AuditNote) -> None:
        await self._run_transaction(lambda connection: _insert_note(connection, note))

    async def list_notes(self, limit: int, *, before: int | None = None) -> list[tuple[int, journal.AuditNote]]:
        sql = "SELECT number, record FROM audit WHERE number < ? ORDER BY number DESC LIMIT ?"
        return await self._run_transaction(
            lambda connection: [
                (number, _decode_note(record))
                for number, record in connection.execute(sql, (2**62 if before is None else before, limit))
            ]
        )

    async def record_hub(self, hub: str, now_ms: int) -> int:
        if known := self._fetch_row("SELECT since_ms FROM hubs WHERE hub = ?", hub):
            return int(known[0])

        def work(connection: sqlite3.Connection) -> int:
            connection.execute("INSERT OR IGNORE INTO hubs VALUES (?, ?)", (hub, now_ms))
            return int(connection.execute("SELECT since_ms FROM hubs WHERE hub = ?", (hub,)).fetchone()[0])

        return await self._run_transaction(work)

    async def load_acknowledgements(self, hub: str) -> dict[str, tuple[int, int]]:
        sql = "SELECT session_id, acked_seq, settled_at_ms FROM marks WHERE hub = ?"
        return await self._run_transaction(
            lambda connection: {row[0]: (row[1], row[2]) for row in connection.execute(sql, (hub,))}
        )

    async def store_acknowledgements(self, hub: str, marks: Sequence[tuple[str, int, int]]) -> None:
        rows = [(hub, *mark) for mark in marks]

        def work(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)", rows)

        if rows:
            await self._run_transaction(work)


def _open_registry(path: Path) -> sqlite3.Connection:
    """Processes that open a new file at once block each other, and SQLite does not wait for all of it by itself."""
    for tries_left in reversed(range(_OPEN_TRIES)):
        try:
            connection = database.open_for_writing(path)
        except sqlite3.OperationalError as problem:
            if not _is_locked(problem) or not tries_left:
                raise
        else:
            try:
                connection.execute(f"PRAGMA busy_timeout = {_LOCK_TIMEOUT_MS}")
                database.migrate(connection, SCRIPTS)
            except BaseException as problem:
                connection.close()
                if not _is_locked(problem) or not tries_left:
                    raise
            else:
                return connection
        time.sleep(_OPEN_PAUSE)
    raise AssertionError("the last try raises or returns")


def _is_locked(problem: BaseException) -> bool:
    return isinstance(problem, sqlite3.OperationalError) and (problem.sqlite_errorcode & 0xFF) == sqlite3.SQLITE_BUSY


def _run_in_transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], Result]) -> Result:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


_encode_note = msgspec.json.Encoder().encode
_decode_note = msgspec.json.Decoder(journal.AuditNote).decode


def _insert_note(connection: sqlite3.Connection, note: journal.AuditNote | None) -> None:
    if note is not None:
        inspection.extend_chain(connection, [(note.ts_ms, "", 0, note.kind, _encode_note(note))])


def _check_not_last(connection: sqlite3.Connection, name: str) -> None:
    admins = {admin for (admin,) in connection.execute("SELECT name FROM users WHERE role = 'admin'")}
    if admins == {name}:
        raise registry.LastAdmin


def _make_user(row: tuple[Any, ...]) -> registry.User:
    name, password_hash, created_at_ms, last_login_at_ms, role = row
    return registry.User(name, password_hash, created_at_ms, last_login_at_ms, roles.parse_role(role))


def _make_token(row: tuple[Any, ...]) -> registry.Token:
    token_id, user, created_at_ms, expires_at_ms, client, revoked_at_ms, name, scope, secret_sha256, last_used_ms = row
    return registry.Token(
        *(token_id, user, created_at_ms, expires_at_ms, client, revoked_at_ms),
        *(name, None if scope is None else roles.parse_role(scope), secret_sha256, last_used_ms),
    )


def _revoke_all(connection: sqlite3.Connection, user: str, now_ms: int) -> int:
    sql = "UPDATE tokens SET revoked_at_ms = ? WHERE user = ? AND revoked_at_ms IS NULL AND expires_at_ms > ?"
    return connection.execute(sql, (now_ms, user, now_ms)).rowcount


def _record_contact(
    connection: sqlite3.Connection, visit: registry.HostContact, first_state: registry.HostState, most: int
) -> registry.Host | None:
    known = connection.execute(f"{_HOST} WHERE host_id = ?", (visit.host_id,)).fetchone()
    if known is None:
        (count,) = connection.execute("SELECT count(*) FROM hosts").fetchone()
        if count >= most:
            made_room = connection.execute(
                "DELETE FROM hosts WHERE host_id ="
                " (SELECT host_id FROM hosts WHERE state = 'pending' ORDER BY last_seen_ms, host_id LIMIT 1)"
            ).rowcount
            if not made_room:
                return None
        row = (
            *(visit.host_id, visit.name or visit.host_id, first_state.value),
            *(visit.at_ms, visit.at_ms, visit.address, visit.token_sha256),
        )
        connection.execute("INSERT INTO hosts VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    else:
        connection.execute(
            "UPDATE hosts SET token_sha256 = ?, last_seen_ms = max(last_seen_ms, ?)"
            " WHERE host_id = ? AND (token_sha256 IS NULL OR token_sha256 = ?)",
            (visit.token_sha256, visit.at_ms, visit.host_id, visit.token_sha256),
        )
    return _make_host(connection.execute(f"{_HOST} WHERE host_id = ?", (visit.host_id,)).fetchone())


def _make_host(row: tuple[Any, ...]) -> registry.Host:
    host_id, name, state, *rest = row
    return registry.Host(host_id, name, registry.HostState(state), *rest)


def _translate_error(problem: BaseException) -> BaseException:
    """Returns the error as the caller sees it. Our own bugs are returned unchanged."""
    if isinstance(problem, errors.JournalUnavailable):  # a migration reports with this that the file belongs to a newer program
        return registry.RegistryUnavailable(problem.detail or "", hint=problem.hint)
    if isinstance(problem, Exception) and database.is_disk_error(problem):
        return registry.RegistryUnavailable(str(problem))
    return problem
