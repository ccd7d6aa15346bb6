"""Decodes MiniCodex frames: bytes to a checked message. Bad input becomes a refusal with the document's codes, and nothing else.

Of two equal names in an object the last one counts, as in the document's own models. `get_action` maps each command to the action
that `core/roles.py` checks.
"""

import re
from collections.abc import Collection
from typing import Any, get_args

import msgspec

from switchtower.core.roles import Action
from switchtower.protocols.minicodex import messages
from switchtower.protocols.minicodex.errors import Code

MAX_REQ_ID_LENGTH = 256
MAX_ERROR_LENGTH = 500

_TYPES: dict[str, type[messages.ClientMessage]] = {
    str(message.__struct_config__.tag): message for message in get_args(messages.ClientMessage)
}
_missing = re.compile(r"Object missing required field `(.*?)`", re.DOTALL).match
_unknown = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL).match
_located = re.compile(r"(.*) - at `\$\.?(.*)`", re.DOTALL).fullmatch
_SHAPES = {"v": f"must be a semantic version such as `{messages.VERSION}`", "run_id": "must be a UUID"}
"""Descriptions of fields whose own rule is a pattern that is hard to read."""


class MiniCodexRequestError(Exception):
    """A frame is not a valid message, or one that cannot be carried out; the fields are the answer."""

    def __init__(self, code: Code, message: str, req_id: str | None, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message[:MAX_ERROR_LENGTH]
        self.req_id = req_id
        self.details = details


def parse(frame: bytes, capabilities: Collection[str] = frozenset()) -> messages.ClientMessage:
    """Returns the message in a frame. `capabilities` are the negotiated ones: they decide which extensions it may use."""
    try:
        loose = msgspec.json.decode(frame)
    except RecursionError:
        raise MiniCodexRequestError("INVALID_COMMAND", "The frame is nested too deeply", None) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise MiniCodexRequestError("INVALID_COMMAND", "The frame is not valid JSON in UTF-8", None) from None
    if type(loose) is not dict:
        raise MiniCodexRequestError("INVALID_COMMAND", "A message is a JSON object with a `type`", None)
    req_id = _find_request_id(loose)
    if "type" not in loose:
        raise MiniCodexRequestError("MISSING_FIELD", "`type` is required", req_id, {"field": "type"})
    type_ = loose["type"]
    wanted = _TYPES.get(type_) if type(type_) is str else None
    if wanted is None:
        shown = f" `{_shorten(type_)}`" if type(type_) is str else ""
        raise MiniCodexRequestError("INVALID_COMMAND", f"Unknown type{shown}; hint: one of {', '.join(_TYPES)}", req_id)
    # minicodex, interop: `extra="forbid"`, so an extension is an unknown field unless the client has negotiated it.
    if wanted is messages.Deny and "abort" in loose and messages.DENY_ABORT not in capabilities:
        raise _make_unknown_field_error("abort", req_id, f"hint: say `{messages.DENY_ABORT}` in `client_capabilities`")
    try:
        return msgspec.convert(loose, wanted)
    except RecursionError:
        raise MiniCodexRequestError("INVALID_COMMAND", "The frame is nested too deeply", req_id) from None
    except msgspec.ValidationError as problem:
        raise _convert_problem(str(problem), req_id) from None


def _convert_problem(problem: str, req_id: str | None) -> MiniCodexRequestError:
    if missing := _missing(problem):
        return MiniCodexRequestError("MISSING_FIELD", f"`{missing[1]}` is required", req_id, {"field": missing[1]})
    if unknown := _unknown(problem):
        return _make_unknown_field_error(_shorten(unknown[1]), req_id)
    located = _located(problem)
    sentence, field = (located[1], located[2]) if located else (problem, "")
    if not field:
        return MiniCodexRequestError("BAD_ARGUMENT", _shorten(sentence), req_id)
    rule = _SHAPES.get(field) or f"{sentence[:1].lower()}{sentence[1:]}"
    return MiniCodexRequestError("BAD_ARGUMENT", f"`{field}`: {rule}", req_id, {"field": field})


def _make_unknown_field_error(field: str, req_id: str | None, hint: str = "") -> MiniCodexRequestError:
    about = f"`{field}` is not a field of this message"
    return MiniCodexRequestError("BAD_ARGUMENT", f"{about}; {hint}" if hint else about, req_id, {"field": field})


def _find_request_id(loose: dict[str, Any]) -> str | None:
    """The answer carries the command's id even when something else in the command is wrong."""
    req_id = loose.get("req_id")
    return req_id if type(req_id) is str and len(req_id) <= MAX_REQ_ID_LENGTH else None


def _shorten(text: str) -> str:
    return text if len(text) <= 100 else text[:99] + "…"


MESSAGE_ACTIONS: dict[type[messages.ClientMessage], Action] = {
    # Without a `session_id` in the address, `hello` and `resume` start a session: that is checked when it happens.
    messages.Hello: Action.WATCH,
    messages.Resume: Action.WATCH,
    messages.Send: Action.SEND,
    messages.Approve: Action.DECIDE,
    messages.Deny: Action.DECIDE,
    messages.Abort: Action.STOP,
    messages.GetSnapshot: Action.WATCH,
    messages.Ping: Action.WATCH,
}


def get_action(message: messages.ClientMessage) -> Action | None:
    """Returns None for a command without a row in the table; such a command needs an admin."""
    return MESSAGE_ACTIONS.get(type(message))
