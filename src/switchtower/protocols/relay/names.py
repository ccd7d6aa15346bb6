"""Ids in two spellings. Relay's are any text up to 128 characters, and a question's is a UUID where we may choose; the core's
have a kind in front and few characters. Both ways lose nothing. Pure."""

import re
from uuid import UUID

from switchtower.core import ids

LONGEST = 128
_LONGEST_OURS = 250
_OURS = re.compile(r"sess_[A-Za-z0-9._:-]{1,200}", re.ASCII)
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", re.ASCII)
_PLAIN = re.compile(rb"[A-Za-z0-9.-]")
_ESCAPED = re.compile(r":([0-9A-F]{2})", re.ASCII)
_FOREIGN = "r."
"""Begins the body of an id that is another program's."""


class BadId(ValueError):
    """An id that cannot be one."""


def session_of(run_id: str) -> str:
    """The core's id for a relay run. Raises `BadId`."""
    _check(run_id)
    if _OURS.fullmatch(run_id) and not run_id.startswith(f"sess_{_FOREIGN}"):
        return run_id
    return _bounded(f"sess_{_FOREIGN}{_escape(run_id)}")


def run_of(session_id: str) -> str:
    body = session_id.removeprefix("sess_")
    return _unescape(body.removeprefix(_FOREIGN)) if body.startswith(_FOREIGN) else session_id


def core_run_of(session_id: str) -> str:
    """The one run of a session that lives on another host."""
    return f"run_{session_id.removeprefix('sess_')}"


def approval_of(request_id: str) -> str:
    """The core's id for the question that relay calls by this id. Raises `BadId`."""
    _check(request_id)
    try:
        uuid = UUID(request_id)
    except ValueError:
        uuid = None
    if uuid is not None and str(uuid) == request_id:
        return ids.from_uuid("appr", uuid)
    return _bounded(f"appr_{_FOREIGN}{_escape(request_id)}")


def request_of(approval_id: str) -> str:
    body = approval_id.removeprefix("appr_")
    if body.startswith(_FOREIGN):
        return _unescape(body.removeprefix(_FOREIGN))
    return str(ids.as_uuid(approval_id)) if _ULID.fullmatch(body) else approval_id


def _check(text: str) -> None:
    if not 0 < len(text) <= LONGEST:
        raise BadId(f"an id has 1 to {LONGEST} characters")


def _bounded(text: str) -> str:
    if len(text) > _LONGEST_OURS:
        raise BadId("the id is too long when spelled in ASCII")
    return text


def _escape(text: str) -> str:
    try:
        spelled = text.encode()
    except UnicodeEncodeError:
        raise BadId("an id is text") from None
    return "".join(chr(byte) if _PLAIN.match(bytes((byte,))) else f":{byte:02X}" for byte in spelled)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text).encode("latin-1").decode(errors="replace")
