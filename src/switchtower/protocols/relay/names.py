"""Ids in two spellings. Relay's are any text up to 128 characters, and a question's is a UUID where we may choose; the core's
have a kind in front and few characters. Both ways lose nothing. Pure."""

import re
from uuid import UUID

from switchtower.core import ids

MAX_ID_LENGTH = 128
_MAX_CORE_ID_LENGTH = 250
_CORE_ID = re.compile(r"sess_[A-Za-z0-9._:-]{1,200}", re.ASCII)
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", re.ASCII)
_PLAIN = re.compile(rb"[A-Za-z0-9.-]")
_ESCAPED = re.compile(r":([0-9A-F]{2})", re.ASCII)
_FOREIGN_PREFIX = "r."
"""Begins the body of an id that is another program's."""


class InvalidRelayId(ValueError):
    """An id that cannot be one."""


def parse_run_id(run_id: str) -> str:
    """The core's id for a relay run. Raises `BadId`."""
    _check_id(run_id)
    if _CORE_ID.fullmatch(run_id) and not run_id.startswith(f"sess_{_FOREIGN_PREFIX}"):
        return run_id
    return _check_length(f"sess_{_FOREIGN_PREFIX}{_escape(run_id)}")


def format_run_id(session_id: str) -> str:
    body = session_id.removeprefix("sess_")
    return _unescape(body.removeprefix(_FOREIGN_PREFIX)) if body.startswith(_FOREIGN_PREFIX) else session_id


def make_core_run_id(session_id: str) -> str:
    """The one run of a session that lives on another host."""
    return f"run_{session_id.removeprefix('sess_')}"


def parse_request_id(request_id: str) -> str:
    """The core's id for the question that relay calls by this id. Raises `BadId`."""
    _check_id(request_id)
    try:
        uuid = UUID(request_id)
    except ValueError:
        uuid = None
    if uuid is not None and str(uuid) == request_id:
        return ids.parse_uuid("appr", uuid)
    return _check_length(f"appr_{_FOREIGN_PREFIX}{_escape(request_id)}")


def format_request_id(approval_id: str) -> str:
    body = approval_id.removeprefix("appr_")
    if body.startswith(_FOREIGN_PREFIX):
        return _unescape(body.removeprefix(_FOREIGN_PREFIX))
    return str(ids.to_uuid(approval_id)) if _ULID.fullmatch(body) else approval_id


def _check_id(text: str) -> None:
    if not 0 < len(text) <= MAX_ID_LENGTH:
        raise InvalidRelayId(f"an id has 1 to {MAX_ID_LENGTH} characters")


def _check_length(text: str) -> str:
    if len(text) > _MAX_CORE_ID_LENGTH:
        raise InvalidRelayId("the id is too long when spelled in ASCII")
    return text


def _escape(text: str) -> str:
    try:
        spelled = text.encode()
    except UnicodeEncodeError:
        raise InvalidRelayId("an id is text") from None
    return "".join(chr(byte) if _PLAIN.match(bytes((byte,))) else f":{byte:02X}" for byte in spelled)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text).encode("latin-1").decode(errors="replace")
