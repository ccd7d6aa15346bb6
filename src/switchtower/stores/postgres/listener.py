"""Notifications between nodes: after a batch, a node reports which sessions changed, from which seq to which. There is one
NOTIFY per batch, and one listening connection per node, however many clients follow a session.

A notice is a hint. It may be lost, and it may name no session: then any session may have changed. Readers page from their
cursor. A dead connection is detected by a regular query. After every new connection, and after anything that may have been
missed, the notice names no session.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

import msgspec
from msgspec import Struct

from switchtower.core import errors
from switchtower.stores.postgres import database
from switchtower.stores.postgres.database import PostgresConnection

CHANNEL = "tower_moved"
_MOST_BYTES = 7_500  # the server's limit is just below 8,000


class HeadsNotice(Struct, frozen=True):
    node_id: str
    heads: dict[str, tuple[int, int]] | None
    """Each session's last seq before the batch, and after it. None: the receiver must check every session that it follows."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(HeadsNotice).decode


def encode_notice(node_id: str, heads: dict[str, tuple[int, int]]) -> str:
    notice = _encode(HeadsNotice(node_id, heads))
    if len(notice) > _MOST_BYTES:
        notice = _encode(HeadsNotice(node_id, None))
    return notice.decode()


def decode_notice(payload: str) -> HeadsNotice:
    """A payload that cannot be decoded means that something changed; so does a notice of the previous version, which has no
    starting seq.
    """
    try:
        return _decode(payload)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return HeadsNotice("", None)


log = logging.getLogger(__name__)
_PULSE = 5.0


class NotificationListener:
    def __init__(self, dsn: str, node_id: str, on_notice: Callable[[HeadsNotice], None], *, pulse: float = _PULSE) -> None:
        """`on_notice` is called for each notice of another node. It must not raise, and not take long. The connection is
        checked every `pulse` seconds, with the same time to respond.
        """
        self._dsn = dsn
        self._node_id = node_id
        self._on_notice = on_notice
        self._pulse = pulse
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Returns when it listens: it gets notices of everything that is committed from now on."""
        try:
            connection = await self._connect()
        except Exception as problem:
            raise database.translate_error(problem) from problem
        self._task = asyncio.create_task(self._listen(connection), name="journal-listener")

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _connect(self) -> PostgresConnection:
        connection = await database.connect(self._dsn)
        try:
            await database.migrate(connection)
            await connection.add_listener(CHANNEL, self._on_notification)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _on_notification(self, _connection: object, _pid: int, _channel: str, payload: str) -> None:
        moved = decode_notice(payload)
        if moved.node_id != self._node_id:
            self._on_notice(moved)

    async def _listen(self, connection: PostgresConnection) -> None:
        while True:
            try:
                while True:
                    await asyncio.sleep(self._pulse)
                    await connection.fetchval("SELECT 1", timeout=self._pulse)
            except Exception as problem:
                log.warning("the connection that hears of other nodes was lost: %s", database.summarize_error(problem))
            finally:
                connection.terminate()
            connection = await self._reconnect()
            self._on_notice(HeadsNotice("", None))

    async def _reconnect(self) -> PostgresConnection:
        for pause in database.iterate_backoff():
            with contextlib.suppress(Exception):
                return await self._connect()
            await asyncio.sleep(pause)
        raise errors.JournalUnavailable("the pauses do not end")
