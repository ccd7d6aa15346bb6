"""A flow's events as lines for people, on stderr. What a runtime says is data: it must not steer the terminal, and kinds of
events that nobody knows are passed over (rep 5.3).
"""

from typing import Any

from switchtower.cli import console

_MAX_LINE_CHARS = 2000
_EVENT_COLOURS = {"succeeded": "green", "failed": "red", "error": "red", "warning": "yellow", "warn": "yellow"}


def print_flow_event(event: dict[str, Any]) -> None:
    match event:
        case {"type": "step", "step_id": str(step), "state": str(state)}:
            console.print_line(
                f"{shorten_line(step)}: {shorten_line(state)}{_format_details(event)}", _EVENT_COLOURS.get(state, "dim")
            )
        case {"type": "log", "message": str(message)}:
            level, about = event.get("level"), event.get("step_id")
            where = f"{shorten_line(about)}: " if isinstance(about, str) and about else ""
            mark = f"[{shorten_line(level)}] " if isinstance(level, str) and level else ""
            console.print_line(
                f"{where}{mark}{shorten_line(message)}", _EVENT_COLOURS.get(level) if isinstance(level, str) else None
            )


def shorten_line(text: str) -> str:
    shown = " ".join(text[: _MAX_LINE_CHARS + 1].splitlines())
    return shown if len(shown) <= _MAX_LINE_CHARS else shown[:_MAX_LINE_CHARS] + "…"


def _format_details(event: dict[str, Any]) -> str:
    attempt, duration, error = event.get("attempt"), event.get("duration_ms"), event.get("error")
    facts = []
    # rep 6: the first try is 0.
    if isinstance(attempt, int) and not isinstance(attempt, bool) and attempt > 0:
        facts.append(f"try {attempt + 1}")
    if isinstance(duration, int | float) and not isinstance(duration, bool):
        facts.append(f"{duration:.0f} ms")
    told = f" ({', '.join(facts)})" if facts else ""
    message = error.get("message") if isinstance(error, dict) else None
    return f"{told}: {shorten_line(message)}" if isinstance(message, str) else told
