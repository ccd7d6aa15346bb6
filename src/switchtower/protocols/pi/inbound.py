"""Decodes pi frames: bytes to a checked request. Bad input becomes a refusal with pi's own text, and never anything else.

A fingerprint is the digest of a command without its own identity: two commands with the same one ask for the same. pi-server 8.3:
neither the order of keys matters, nor how a number is spelled (`1`, `1.0`, `1e0`). `get_action` maps each command to the action
that `core/roles.py` checks. Pure.
"""

import hashlib
import re
from typing import Any

import msgspec
from msgspec import Struct

from switchtower.core.roles import Action
from switchtower.protocols.pi import errors, messages

KEPT_FRAME = 1_024
"""A frame up to this size is digested only when its fingerprint is first read; few ever are."""

_encode = msgspec.json.Encoder(order="sorted").encode


def normalize_number(spelled: str) -> float:
    """Converts a JSON number with a fraction or an exponent, to an integer when it is one."""
    value = float(spelled)
    if value - value != 0.0:
        raise ValueError("Number out of range")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


decode = msgspec.json.Decoder(float_hook=normalize_number).decode


def compute_digest(command: dict[str, Any]) -> str:
    meaning = {name: value for name, value in command.items() if name not in ("id", "idempotencyKey")}
    return hashlib.sha256(_encode(meaning)).hexdigest()


class Fingerprint:
    """The fingerprint of one checked frame. It keeps the frame while that is small, the digest once it is known, never both."""

    __slots__ = ("_digest", "_frame")

    def __init__(self, frame: bytes, command: dict[str, Any]) -> None:
        keep = len(frame) <= KEPT_FRAME
        self._frame = frame if keep else b""
        self._digest = "" if keep else compute_digest(command)

    @classmethod
    def from_value(cls, value: str) -> "Fingerprint":
        """Restores a fingerprint from a receipt."""
        fingerprint = cls.__new__(cls)
        fingerprint._frame, fingerprint._digest = b"", value
        return fingerprint

    @property
    def value(self) -> str:
        if not self._digest:
            self._digest, self._frame = compute_digest(decode(self._frame)), b""
        return self._digest


UNKNOWN = "unknown"
"""The command's name in the answer when the frame's type cannot be read."""
NESTING_LIMIT = 64
ANONYMOUS = "anon:"
"""The prefix of the ids that we give to commands without one; a client may not use it."""


class PiRequest(Struct, frozen=True):
    type: str
    id: str | None
    session_id: str | None
    depends_on: list[str]
    if_session_version: int | None
    idempotency_key: str | None
    body: messages.Command
    meaning: Fingerprint | None
    """Only commands with an identity have one."""

    @property
    def fingerprint(self) -> str:
        return self.meaning.value if self.meaning is not None else ""


class PiRequestError(Exception):
    """A frame is not a valid command; `error` is the answer."""

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
        loose = decode(frame)
    except RecursionError:
        raise PiRequestError(UNKNOWN, None, errors.TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise PiRequestError(UNKNOWN, None, errors.BAD_JSON) from None
    if type(loose) is not dict:
        raise PiRequestError(UNKNOWN, None, errors.NOT_AN_OBJECT)
    # Fewer brackets than levels is impossible, and counting them is cheap.
    if frame.count(b"{") + frame.count(b"[") > NESTING_LIMIT and _is_too_deep(loose):
        raise PiRequestError(_find_type(loose), _find_id(loose), errors.TOO_DEEP)
    type_ = loose.get("type")
    if type(type_) is not str:
        raise PiRequestError(UNKNOWN, _find_id(loose), errors.format_invalid_field("type", "must be a string"))
    wanted = messages.COMMANDS.get(type_)
    if wanted is None:
        raise PiRequestError(errors.shorten(type_), _find_id(loose), errors.format_unknown_type(type_))
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
        Fingerprint(frame, loose) if id_ is not None or key is not None else None,
    )


def _find_envelope_problem(body: messages.Command) -> str | None:
    """Checks what the types do not express, or what a pattern would make slow."""
    if body.sessionId is not None and not is_session_id(body.sessionId):
        return errors.format_invalid_field("sessionId", "must be 1 to 256 letters, digits or `_.-`")
    if body.id is not None and body.id.startswith(ANONYMOUS):
        return errors.format_invalid_field("id", f"must not begin with `{ANONYMOUS}`")
    if body.dependsOn and body.id is None:
        return errors.format_invalid_field("id", "is required with dependsOn")
    if body.ifSessionVersion is not None and body.sessionId is None:
        return errors.format_invalid_field("sessionId", "is required with ifSessionVersion")
    return None


def _is_too_deep(value: Any) -> bool:
    """Checks level by level, so that no frame of a peer can exhaust our own stack."""
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
    return errors.shorten(type_) if type(type_) is str else UNKNOWN


def _find_id(loose: dict[str, Any]) -> str | None:
    """pi-server 5.1: the answer carries the request's id, also when something else in the request is wrong."""
    id_ = loose.get("id")
    return id_ if type(id_) is str and len(id_) <= messages.ID_LIMIT else None


def _convert_problem(problem: str) -> str:
    """Rewrites the decoder's sentence with the field first."""
    sentence, field = problem, "command"
    if located := _located(problem):
        sentence, field = located[1], located[2]
    if missing := _missing(sentence):
        return errors.format_invalid_field(f"{field}.{missing[1]}" if located else missing[1], "is required")
    return errors.format_invalid_field(errors.shorten(field), errors.shorten(sentence[:1].lower() + sentence[1:]))


COMMAND_ACTIONS: dict[str, Action] = {
    "list_sessions": Action.WATCH,
    "create_session": Action.START,
    "delete_session": Action.DELETE,
    "switch_session": Action.WATCH,
    "get_metrics": Action.WATCH,
    "health_check": Action.WATCH,
    "list_stored_sessions": Action.WATCH,
    "load_session": Action.START,
    "get_available_models": Action.WATCH,
    "get_commands": Action.WATCH,
    "get_skills": Action.WATCH,
    "get_tools": Action.WATCH,
    "list_session_files": Action.WATCH,
    "prompt": Action.SEND,
    "steer": Action.SEND,
    "follow_up": Action.SEND,
    "abort": Action.STOP,
    "get_state": Action.WATCH,
    "get_messages": Action.WATCH,
    "set_model": Action.CONFIGURE,
    "cycle_model": Action.CONFIGURE,
    "set_thinking_level": Action.CONFIGURE,
    "cycle_thinking_level": Action.CONFIGURE,
    "set_session_name": Action.CONFIGURE,
    "compact": Action.CONFIGURE,
    "abort_compaction": Action.STOP,
    "set_auto_compaction": Action.CONFIGURE,
    "set_auto_retry": Action.CONFIGURE,
    "abort_retry": Action.STOP,
    "bash": Action.ACT,
    "abort_bash": Action.STOP,
    "get_session_stats": Action.WATCH,
    # An export writes a file.
    "export_html": Action.ACT,
    "export_jsonl": Action.ACT,
    "new_session": Action.START,
    "switch_session_file": Action.START,
    "fork": Action.FORK,
    "get_fork_messages": Action.WATCH,
    "get_last_assistant_text": Action.WATCH,
    "get_context_usage": Action.WATCH,
    "extension_ui_response": Action.ANSWER,
}


def get_action(type_: str, body: messages.Command) -> Action | None:
    """Returns None for a command without a row in the table; such a command needs an admin."""
    if isinstance(body, messages.ExtensionUiResponse):
        answer = body.response
        if isinstance(answer, messages.Confirmed) and answer.always:
            return Action.ALLOW_ALWAYS
    return COMMAND_ACTIONS.get(type_)
