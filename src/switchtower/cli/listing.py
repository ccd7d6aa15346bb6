"""Rows of the daemon's listings of users, tokens and hosts, for people. Pure."""

import datetime
from collections.abc import Mapping

from switchtower.cli import ages


def format_cell(row: Mapping[str, object], key: str) -> str:
    value = row.get(key)
    return "-" if value is None or value == "" else str(value)


def format_since(row: Mapping[str, object], key: str, *, now: float) -> str:
    moment = _parse_moment(row.get(key))
    return "never" if moment is None else f"{ages.format_age(now - moment)} ago"


def format_until(row: Mapping[str, object], key: str, *, now: float) -> str:
    moment = _parse_moment(row.get(key))
    return "-" if moment is None else f"in {ages.format_age(moment - now)}"


def _parse_moment(value: object) -> float | None:
    """Seconds since 1970, from a time as relay spells it or from milliseconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value / 1_000
    if isinstance(value, str):
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            return None
        return moment.replace(tzinfo=moment.tzinfo or datetime.UTC).timestamp()
    return None
