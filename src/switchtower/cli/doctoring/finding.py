"""One line of a diagnosis: what was looked at, how it is, and what to do about it. Pure."""

from typing import Literal

from msgspec import Struct

FindingStatus = Literal["ok", "warn", "fail"]


class Finding(Struct, frozen=True):
    name: str
    status: FindingStatus
    detail: str
    remedy: str | None = None


def report_ok(name: str, detail: str) -> Finding:
    return Finding(name, "ok", detail)


def report_warning(name: str, detail: str, remedy: str) -> Finding:
    """Something works less well than it could."""
    return Finding(name, "warn", detail, remedy)


def report_failure(name: str, detail: str, remedy: str) -> Finding:
    """Something that was asked for does not work."""
    return Finding(name, "fail", detail, remedy)
