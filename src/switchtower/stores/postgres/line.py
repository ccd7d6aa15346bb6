"""The one connection that appends go through, and the truth about those that were under way when it broke.

Each batch has a number, which the database notes in the batch's own transaction. A new connection raises the writer's
generation there and is told the last number. From then on nothing that the broken one had sent can still be stored, so the
answer is final: that batch is there, or it is not.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Any

from switchtower.core import errors
from switchtower.stores.postgres import connections, group
from switchtower.stores.postgres.connections import PostgresConnection

_STATEMENT_SECONDS = 30.0
_CLOSE_SECONDS = 2.0
_CROSSINGS = 5
_SUPERSEDED = "TW001"
_READ_ONLY = "25006"


class WriterConnection:
    def __init__(self, dsn: str, timeout: float, *, on_lost: Callable[[errors.JournalUnavailable | None], None]) -> None:
        """`went` hears of a database that stays away for longer than `patience`, and with None that it is back."""
        self._dsn = dsn
        self._timeout = timeout
        self._on_lost = on_lost
        self._writer = f"wrt_{secrets.token_hex(12)}"
        self._connection: PostgresConnection | None = None
        self._generation = 0
        self._batch = 0
        self._stopping = asyncio.Event()

    async def connect(self) -> None:
        """The first time: what is wrong is raised at once."""
        await self._renew()

    async def get_connection(self) -> PostgresConnection:
        """To be read from. A database that is away is waited for, as long as patience lasts."""
        if self._connection is None or self._connection.is_closed():
            await self._reconnect(for_good=False)
        assert self._connection is not None, "reconnecting ends in a connection or raises"
        return self._connection

    async def write(self, arguments: list[Any]) -> None:
        """Returns when the batch is stored. Whatever it raises, nothing of the batch is stored."""
        connection = await self.get_connection()
        tries_left = _CROSSINGS
        while True:
            self._batch += 1
            try:
                await connection.execute(
                    group.CALL, self._writer, self._generation, self._batch, *arguments, timeout=_STATEMENT_SECONDS
                )
                return
            except Exception as problem:
                state = connections.get_sqlstate(problem) or ""
                if state.startswith("40") and tries_left:  # another transaction was in the way, and this one gave in
                    tries_left -= 1
                    continue
                if state == _READ_ONLY:
                    connection.terminate()  # the server became a standby; the next connection may find the one that writes
                    raise
                # The row of a writer may be gone after a month; it is made anew like a connection.
                if state != _SUPERSEDED and not connections.is_lost(problem, connection):
                    raise
            connection.terminate()
            if await self._reconnect(for_good=True) >= self._batch:
                return
            connection = await self.get_connection()

    def stop(self) -> None:
        """Nobody waits any longer for a database that is away."""
        self._stopping.set()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            with contextlib.suppress(Exception):
                await connection.execute("DELETE FROM writers WHERE writer = $1", self._writer, timeout=_CLOSE_SECONDS)
                await connection.close(timeout=_CLOSE_SECONDS)
            connection.terminate()

    async def _renew(self) -> int:
        connection = await connections.connect(self._dsn, connections.BY_INDEX)
        try:
            row = await connection.fetchrow(
                "INSERT INTO writers AS known VALUES ($1, 1, 0, now())"
                " ON CONFLICT (writer) DO UPDATE SET generation = known.generation + 1 RETURNING generation, batch",
                self._writer,
                timeout=_STATEMENT_SECONDS,
            )
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        self._generation, last_batch = row
        return int(last_batch)

    async def _reconnect(self, *, for_good: bool) -> int:
        """The number of the last batch that was stored. `for_good`: an answer is owed, so it tries for as long as it takes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        was_told = False
        for pause in connections.iterate_backoff():
            try:
                last_batch = await self._renew()
            except Exception as problem:
                reason = connections.translate_error(problem)
                if not isinstance(reason, errors.JournalUnavailable):
                    raise
                if loop.time() >= deadline:
                    if not for_good:
                        raise reason from problem
                    if not was_told:
                        was_told = True
                        self._on_lost(reason)
            else:
                if was_told:
                    self._on_lost(None)
                return last_batch
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
                raise errors.JournalUnavailable(
                    "the database went away, and whether this was stored is not known" if for_good else "it is closing"
                )
        raise AssertionError("the pauses do not end")
