"""The line below the input: model, policy, sandbox, tokens, money, and how full the context is. Pure."""

from typing import NamedTuple

from switchtower.protocols.push import extensions
from switchtower.tui.state import amounts

BAR_WIDTH = 10
_NEARLY_FULL = 0.8


class SessionMeter(NamedTuple):
    model: str
    policy: str
    sandbox: str
    spent: str
    context: str
    is_nearly_full: bool


def make_meter(
    about: extensions.SessionInfo | None, *, provider: str = "", model: str | None = None, policy: str = ""
) -> SessionMeter:
    """Before there is a session, what it would begin with."""
    if about is None:
        return SessionMeter(model or provider, policy, "", "", "", False)
    if about.terminal is not None:
        return SessionMeter(about.terminal.tool, about.policy, about.sandbox, "", "", False)
    name = about.model or about.provider
    thinking = f" ({about.thinking})" if about.thinking and about.thinking != "off" else ""
    used, window = about.contextTokens, about.contextWindow
    return SessionMeter(
        f"{name}{thinking}",
        about.policy,
        about.sandbox,
        _format_spent(about.usage),
        f"{format_bar(used, window)} {used / window:.0%}"
        if window
        else f"{amounts.format_tokens(used)} in context"
        if used
        else "",
        bool(window) and used / (window or 1) >= _NEARLY_FULL,
    )


def _format_spent(usage: extensions.Usage) -> str:
    if not usage.calls:
        return ""
    spent = f"↑{amounts.format_tokens(usage.inputTokens)} ↓{amounts.format_tokens(usage.outputTokens)}"
    if usage.unpricedCalls == usage.calls or not usage.cost:
        return spent
    return f"{spent} {'≥' if usage.unpricedCalls else ''}{amounts.format_dollars(usage.cost)}"


def format_bar(used: int, window: int) -> str:
    filled = min(BAR_WIDTH, max(0, round(BAR_WIDTH * used / window))) if window > 0 else 0
    if used > 0 and not filled:
        filled = 1
    return "▰" * filled + "▱" * (BAR_WIDTH - filled)
