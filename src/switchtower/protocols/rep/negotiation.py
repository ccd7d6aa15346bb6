"""rep 9: whether a runtime can do what a flow needs. Pure; says why not, and what helps."""

import re
from collections.abc import Collection
from typing import Any

from msgspec import Struct

from switchtower.protocols.rep import errors, messages, outcome

_FIELDS: dict[str, tuple[type, str]] = {
    "version": (str, "a string"),
    "step_kinds": (list, "a list"),
    "limits": (dict, "an object"),
}
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?", re.ASCII
)
_REMEDY = "hint: use another runtime, or look at what this one says with `tm runtime cache show --engine {engine}`"


class RuntimeUnsuitable(Exception):
    """The runtime cannot run this flow."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = error


class RuntimeCapabilities(Struct, frozen=True):
    """What a runtime says of itself, once it is known to be complete."""

    version: str
    step_kinds: frozenset[str]
    limits: dict[str, Any]


def parse_capabilities(answer: Any, *, engine: str) -> RuntimeCapabilities:
    """Raises `Unacceptable` when a required field is missing or is something else."""
    fields = answer if isinstance(answer, dict) else {}
    missing = [name for name in _FIELDS if name not in fields]
    if missing:
        told = ", ".join(f"`{name}`" for name in missing)
        raise RuntimeUnsuitable(_make_error(f"the runtime's capabilities lack {told}", engine, {"missing": missing}))
    wrong = [f"`{name}` is not {what}" for name, (kind, what) in _FIELDS.items() if not isinstance(fields[name], kind)]
    if not wrong and not all(isinstance(kind, str) for kind in fields["step_kinds"]):
        wrong.append("`step_kinds` holds something else than strings")
    if isinstance(fields["version"], str) and not _SEMVER.fullmatch(fields["version"]):
        wrong.append(f"`version` is `{fields['version'][:100]}` and not a semantic version such as `0.1.0`")
    if wrong:
        raise RuntimeUnsuitable(
            _make_error(f"the runtime's capabilities are not usable: {', '.join(wrong)}", engine, {"wrong": wrong})
        )
    return RuntimeCapabilities(fields["version"], frozenset(fields["step_kinds"]), fields["limits"])


def find_missing_kinds(offer: RuntimeCapabilities, required: Collection[str]) -> frozenset[str]:
    return frozenset(required) - offer.step_kinds


def check_capabilities(offer: RuntimeCapabilities, required: Collection[str], *, engine: str) -> None:
    """Raises `Unacceptable` when the flow needs a kind that the runtime does not have."""
    missing = sorted(find_missing_kinds(offer, required))
    if not missing:
        return
    told = ", ".join(f"`{kind}`" for kind in missing)
    message = f"the runtime does not support the step kind{'s' if len(missing) > 1 else ''} {told}"
    if set(missing) <= set(messages.CONTROL_KINDS):
        message += ", which direct the flow and which this flow cannot do without"
    details = {"missing": missing, "supported": sorted(offer.step_kinds)}
    raise RuntimeUnsuitable(_make_error(message, engine, details, code=errors.RepErrorCode.UNSUPPORTED_STEP_KIND))


def _make_error(message: str, engine: str, details: dict[str, Any], *, code: int = outcome.VALIDATION) -> dict[str, Any]:
    return outcome.make_error(code, f"{message}; {_REMEDY.format(engine=engine)}", details=details)
