"""Reads and writes pi's session files: JSON lines, a header first, then entries that form a tree. Pure: bytes in, bytes out.

The conversation is the path from the last entry back to the root. Version 1 has no tree, only an order. A file may come from
anywhere, so an invalid line is skipped and counted, and everything is bounded.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from switchtower.core import codec, events
from switchtower.protocols.pi import event_messages
from switchtower.protocols.pi.sessions import info, message_import

VERSION = 3

_PARSE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, TypeError)


class NotASessionFile(Exception):
    """The file is not a session of pi's that can be read; the reason is for people."""


class SessionFileLimits(Struct, frozen=True, kw_only=True):
    file_bytes: int = 128 * 1024 * 1024
    line_bytes: int = 32 * 1024 * 1024
    """A longer line is skipped."""
    entries: int = 200_000
    messages: int = 20_000


class SessionFileHeader(Struct, frozen=True, kw_only=True):
    version: int
    session_id: str
    cwd: str
    created_at_ms: int
    provider: str | None = None
    """Only version 1 has this field and the two below in its header."""
    model: str | None = None
    thinking: str | None = None


class ImportedSession(Struct, frozen=True, kw_only=True):
    session_id: str
    name: str | None
    cwd: str
    created_at_ms: int
    messages: tuple[events.MessageImported, ...]
    skipped: int
    """Lines and messages that could not be read."""
    provider: str | None = None
    model: str | None = None
    thinking: str | None = None


class _EntryHead(Struct, frozen=True):
    """The part of an entry that is decoded while the file is read. The rest stays bytes until it is known to be needed."""

    type: str
    id: str | None = None
    parentId: str | None = None


_decode_head = msgspec.json.Decoder(_EntryHead).decode
_decode_entry = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class SessionFileReader:
    """Reads a file in pieces, however it is cut."""

    def __init__(self, limits: SessionFileLimits = SessionFileLimits()) -> None:  # noqa: B008 (it is frozen)
        self._limits = limits
        self._header: SessionFileHeader | None = None
        self._lines: list[bytes] = []
        self._parents: list[str | None] = []
        self._places: dict[str, int] = {}
        """Ids to lines; of two equal ids the later one counts."""
        self._rest = bytearray()
        self._overlong = False
        self._bytes = 0
        self._skipped = 0

    def feed(self, data: bytes) -> None:
        """Raises `NotASessionFile` as soon as that is certain."""
        self._bytes += len(data)
        if self._bytes > self._limits.file_bytes:
            raise NotASessionFile(f"the file is larger than {self._limits.file_bytes} bytes")
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._add_to_rest(line)
            self._end_line()
        self._add_to_rest(rest)

    def close(self) -> ImportedSession:
        self._end_line()
        if self._header is None:
            raise NotASessionFile("it does not begin with the header of a session")
        imported = _ConversationBuilder(self._header, self._trace_path(), self._skipped).build()
        if len(imported.messages) > self._limits.messages:
            raise NotASessionFile(f"its conversation has more than {self._limits.messages} messages")
        return imported

    def _add_to_rest(self, data: bytes) -> None:
        if len(self._rest) + len(data) > self._limits.line_bytes:
            self._overlong = True
            self._rest.clear()
        if not self._overlong:
            self._rest += data

    def _end_line(self) -> None:
        line, overlong = bytes(self._rest), self._overlong
        self._rest.clear()
        self._overlong = False
        if overlong:
            self._skipped += 1
        elif line.strip():
            try:
                self._add_entry(line)
            except _PARSE_ERRORS:
                self._skipped += 1

    def _add_entry(self, line: bytes) -> None:
        if self._header is None:
            self._header = parse_header(line)
            return
        head = _decode_head(line)
        place = len(self._lines)
        if place >= self._limits.entries:
            raise NotASessionFile(f"it has more than {self._limits.entries} entries")
        if self._header.version == 1:
            # `firstKeptEntryIndex` counts the header as 0.
            entry_id, parent = str(place + 1), str(place) if place else None
        elif head.id is None:
            raise ValueError("an entry of a tree has an id")
        else:
            entry_id, parent = head.id, head.parentId
        self._lines.append(line)
        self._parents.append(parent)
        self._places[entry_id] = place

    def _trace_path(self) -> list[tuple[str, bytes]]:
        """Returns the entries from the root to the last one, with their ids."""
        ids = {place: entry_id for entry_id, place in self._places.items()}
        path: list[tuple[str, bytes]] = []
        seen: set[int] = set()
        place: int | None = len(self._lines) - 1 if self._lines else None
        while place is not None and place not in seen:  # parents that form a ring end where it closes
            seen.add(place)
            path.append((ids.get(place, ""), self._lines[place]))
            parent = self._parents[place]
            place = None if parent is None else self._places.get(parent)
        path.reverse()
        return path


def parse_header(line: bytes) -> SessionFileHeader:
    """Parses the first line of a file. Raises `NotASessionFile`."""
    try:
        found = _decode_entry(line)
    except _PARSE_ERRORS:
        raise NotASessionFile("its first line is not JSON") from None
    if found.get("type") != "session" or not isinstance(found.get("id"), str):
        raise NotASessionFile("it does not begin with the header of a session")
    version = found.get("version", 1)
    if version not in range(1, VERSION + 1):
        raise NotASessionFile(f"its version is not one of 1 to {VERSION}")
    return SessionFileHeader(
        version=int(version),
        session_id=found["id"],
        cwd=_get_string(found.get("cwd")) or "",
        created_at_ms=message_import.parse_milliseconds(found.get("timestamp"), 0),
        provider=_get_string(found.get("provider")),
        model=_get_string(found.get("modelId")),
        thinking=_get_string(found.get("thinkingLevel")),
    )


class _ConversationBuilder:
    def __init__(self, header: SessionFileHeader, path: list[tuple[str, bytes]], skipped: int) -> None:
        self._header = header
        self._path = path
        self._skipped = skipped
        self._messages: list[tuple[int, events.MessageImported]] = []
        """Each message with its place on the path."""
        self._compaction: tuple[events.MessageImported, object, int] | None = None
        """A summary, the id of the first entry that it does not replace, and the number of messages before it."""
        self._name: str | None = None
        self._provider, self._model, self._thinking = header.provider, header.model, header.thinking

    def build(self) -> ImportedSession:
        for place, (_, line) in enumerate(self._path):
            try:
                self._add(place, _decode_entry(line))
            except _PARSE_ERRORS:
                self._skipped += 1
        messages = tuple(self._drop_orphan_results(self._select_messages()))
        return ImportedSession(
            session_id=self._header.session_id,
            name=self._name,
            cwd=self._header.cwd,
            created_at_ms=self._header.created_at_ms,
            messages=messages,
            skipped=self._skipped,
            provider=self._provider,
            model=self._model,
            thinking=self._thinking,
        )

    def _add(self, place: int, entry: dict[str, Any]) -> None:
        at_ms = message_import.parse_milliseconds(entry.get("timestamp"), self._header.created_at_ms)
        match entry.get("type"):
            case "message":
                self._add_message(place, message_import.convert_message(entry.get("message"), at_ms))
                self._record_model(entry["message"])
            case "custom_message":
                self._add_message(place, message_import.make_user_message(entry.get("content"), at_ms))
            case "branch_summary":
                self._add_message(place, message_import.make_summary_message(entry.get("summary"), at_ms))
            case "compaction":
                self._compact(entry, at_ms)
            case "model_change":
                self._provider, self._model = _get_string(entry.get("provider")), _get_string(entry.get("modelId"))
            case "thinking_level_change":
                self._thinking = _get_string(entry.get("thinkingLevel"))
            case "session_info":
                self._name = _get_string(entry.get("name"))
            case _:
                pass  # notes of extensions and people, not for the model

    def _add_message(self, place: int, message: events.MessageImported | None) -> None:
        if message is not None:
            codec.encode(message)  # a message that cannot be journalled, such as one with half a surrogate, is refused
            self._messages.append((place, message))

    def _record_model(self, said: dict[str, Any]) -> None:
        if said.get("role") == "assistant" and _get_string(said.get("model")):
            self._provider, self._model = _get_string(said.get("provider")), _get_string(said.get("model"))

    def _compact(self, entry: dict[str, Any], at_ms: int) -> None:
        """The last compaction counts: its summary also covers what an earlier one summarised."""
        summary = message_import.make_summary_message(entry.get("summary"), at_ms, entry.get("tokensBefore", 0))
        if summary is None:
            raise ValueError("a compaction has a summary")
        codec.encode(summary)
        first_kept = entry.get("firstKeptEntryId", str(entry.get("firstKeptEntryIndex")))
        self._compaction = (summary, first_kept, len(self._messages))

    def _select_messages(self) -> Iterator[events.MessageImported]:
        """Yields the messages for the model, with a summary in place of those that it replaces."""
        first, count = 0, 0
        if self._compaction is not None:
            summary, first_kept, count = self._compaction
            yield summary
            # The entry may have no message: then the messages after it on the path are kept.
            ids = [entry_id for entry_id, _ in self._path]
            first = ids.index(first_kept) if first_kept in ids else len(ids)
        for index, (place, message) in enumerate(self._messages):
            if index >= count or place >= first:
                yield message

    def _drop_orphan_results(self, messages: Iterable[events.MessageImported]) -> Iterator[events.MessageImported]:
        """Drops the results of calls that do not exist or already have a result: models reject those."""
        open_calls: set[str] = set()
        for message in messages:
            if message.role == "tool" and message.call_id not in open_calls:
                self._skipped += 1
                continue
            open_calls.update(call.call_id for call in message.calls)
            open_calls.discard(message.call_id or "")
            yield message


def read_session_file(pieces: Iterable[bytes], limits: SessionFileLimits = SessionFileLimits()) -> ImportedSession:  # noqa: B008 (it is frozen)
    """Raises `NotASessionFile`."""
    reader = SessionFileReader(limits)
    for piece in pieces:
        reader.feed(piece)
    return reader.close()


class _SessionFileEntry(Struct, frozen=True, kw_only=True):
    type: str
    id: str
    parentId: str | None
    timestamp: str
    message: event_messages.Message | UnsetType = UNSET
    name: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    firstKeptEntryId: str | UnsetType = UNSET
    tokensBefore: int | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    modelId: str | UnsetType = UNSET
    thinkingLevel: str | UnsetType = UNSET


def export_jsonl(
    session_id: str,
    cwd: str,
    created_at_ms: int,
    messages: Iterable[event_messages.Message],
    *,
    name: str | None = None,
    model: event_messages.Model | None = None,
    thinking: str | None = None,
) -> Iterator[bytes]:
    """Yields the lines of a session file that pi can continue."""
    first = {
        "type": "session",
        "version": VERSION,
        "id": session_id,
        "timestamp": info.format_iso_time(created_at_ms),
        "cwd": cwd,
    }
    yield _encode(first) + b"\n"
    parent: str | None = None
    for number, message in enumerate(messages, start=1):
        entry = _make_entry(message, f"{number:08x}", parent)
        yield _encode(entry) + b"\n"
        parent = entry.id
    moment = info.format_iso_time(created_at_ms)
    if model is not None:
        entry = _SessionFileEntry(
            type="model_change", id="model000", parentId=parent, timestamp=moment, provider=model.provider, modelId=model.id
        )
        yield _encode(entry) + b"\n"
        parent = entry.id
    if thinking is not None:
        entry = _SessionFileEntry(
            type="thinking_level_change", id="thinking", parentId=parent, timestamp=moment, thinkingLevel=thinking
        )
        yield _encode(entry) + b"\n"
        parent = entry.id
    if name:
        yield _encode(_SessionFileEntry(type="session_info", id="00000000", parentId=parent, timestamp=moment, name=name)) + b"\n"


def _make_entry(message: event_messages.Message, entry_id: str, parent: str | None) -> _SessionFileEntry:
    moment = info.format_iso_time(message.timestamp)
    if isinstance(message, event_messages.CompactionSummary):
        # The messages that it summarises are not in the file, so nothing before it is kept: the first kept entry follows it.
        return _SessionFileEntry(
            type="compaction",
            id=entry_id,
            parentId=parent,
            timestamp=moment,
            summary=message.summary,
            firstKeptEntryId=entry_id,
            tokensBefore=message.tokensBefore,
        )
    return _SessionFileEntry(type="message", id=entry_id, parentId=parent, timestamp=moment, message=message)


def _get_string(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
