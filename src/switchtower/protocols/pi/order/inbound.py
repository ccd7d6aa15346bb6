"""Pi frames in: bytes to a checked request. Bad input becomes a refusal in pi's own words, and never anything else."""

import re
from typing import Any

import msgspec
from msgspec import Struct

from switchtower.protocols.pi import messages, strings
from switchtower.protocols.pi.order import fingerprints

UNKNOWN = "unknown"
"""Stands for a command whose type cannot be told."""
NESTING_LIMIT = 64
ANONYMOUS = "anon:"
"""Begins the ids that we give to commands without one; a client may not use it."""


class PiRequest(Struct, frozen=True):
    type: str
    id: str | None
    session_id: str | None
    depends_on: list[str]
    if_session_version: int | None
    idempotency_key: str | None
    body: messages.Command
    meaning: fingerprints.Fingerprint | None
    """Only of commands with an identity."""

    @property
    def fingerprint(self) -> str:
        return self.meaning.value if self.meaning is not None else ""


class PiRequestError(Exception):
    """A frame that is no valid command, with what to answer it with."""

    def __init__(self, command: str, id_: str | None, error: str) -> None:
        super().__init__(error)
        self.command = command
        self.id = id_
        self.error = error


is_session_id = re.compile(r"[A-Za-z0-9_.-]{1,256}").fullmatch
_located = re.compile(r"(.*) - at `(?:key in )?\$\.?(.*)`", re.DOTALL).fullmatch
_missing = re.compile(r"Object missing required field `(.*)`", re.DOTALL).fullmatch
_no_dependencies: list[str] = []


def parse_request(frame: bytes) -> PiRequest:
    try:
        loose = fingerprints.decode(frame)
    except RecursionError:
        raise PiRequestError(UNKNOWN, None, strings.TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise PiRequestError(UNKNOWN, None, strings.BAD_JSON) from None
    if type(loose) is not dict:
        raise PiRequestError(UNKNOWN, None, strings.NOT_AN_OBJECT)
    # Fewer brackets than levels is impossible, and counting them is cheap.
    if frame.count(b"{") + frame.count(b"[") > NESTING_LIMIT and _is_too_deep(loose):
        raise PiRequestError(_find_type(loose), _find_id(loose), strings.TOO_DEEP)
    type_ = loose.get("type")
    if type(type_) is not str:
        raise PiRequestError(UNKNOWN, _find_id(loose), strings.format_invalid_field("type", "must be a string"))
    wanted = messages.COMMANDS.get(type_)
    if wanted is None:
        raise PiRequestError(strings.shorten(type_), _find_id(loose), strings.format_unknown_type(type_))
    try:
        body = msgspec.convert(loose, wanted)
    except msgspec.ValidationError as problem:
        raise PiRequestError(type_, _find_id(loose), _convert_problem(str(problem))) from None
    id_, key, session_id = body.id, body.idempotencyKey, body.sessionId
    problem_there = _find_envelope_problem(body)
    if problem_there:
        raise PiRequestError(type_, _find_id(loose), problem_there)
    return PiRequest(
        type_,
        id_,
        session_id,
        body.dependsOn or _no_dependencies,
        body.ifSessionVersion,
        key,
        body,
        fingerprints.Fingerprint(frame, loose) if id_ is not None or key is not None else None,
    )


def _find_envelope_problem(body: messages.Command) -> str | None:
    """What no type says, or what a pattern would make slow."""
    if body.sessionId is not None and not is_session_id(body.sessionId):
        return strings.format_invalid_field("sessionId", "must be 1 to 256 letters, digits or `_.-`")
    if body.id is not None and body.id.startswith(ANONYMOUS):
        return strings.format_invalid_field("id", f"must not begin with `{ANONYMOUS}`")
    if body.dependsOn and body.id is None:
        return strings.format_invalid_field("id", "is required with dependsOn")
    if body.ifSessionVersion is not None and body.sessionId is None:
        return strings.format_invalid_field("sessionId", "is required with ifSessionVersion")
    return None


def _is_too_deep(value: Any) -> bool:
    """Level by level, so that nothing a peer sends can exhaust our own stack."""
    level = [value]
    for _ in range(NESTING_LIMIT):
        level = [
            part for whole in level for part in (whole.values() if type(whole) is dict else whole) if type(part) in (dict, list)
        ]
        if not level:
            return False
    return True


def _find_type(loose: dict[str, Any]) -> str:
    type_ = loose.get("type")
    return strings.shorten(type_) if type(type_) is str else UNKNOWN


def _find_id(loose: dict[str, Any]) -> str | None:
    """pi-server 5.1: the answer carries the request's id, also when something else in the request is wrong."""
    id_ = loose.get("id")
    return id_ if type(id_) is str and len(id_) <= messages.ID_LIMIT else None


def _convert_problem(problem: str) -> str:
    """The decoder's sentence with the field first."""
    sentence, field = problem, "command"
    if located := _located(problem):
        sentence, field = located[1], located[2]
    if missing := _missing(sentence):
        return strings.format_invalid_field(f"{field}.{missing[1]}" if located else missing[1], "is required")
    return strings.format_invalid_field(strings.shorten(field), strings.shorten(sentence[:1].lower() + sentence[1:]))
