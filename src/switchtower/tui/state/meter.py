"""The line below the input: model, policy, sandbox, tokens, money, and how full the context is. Pure."""

from typing import NamedTuple

from switchtower.protocols.push import extensions
from switchtower.tui.state import amounts

BAR = 10
_FULL = 0.8


class Meter(NamedTuple):
    model: str
    policy: str
    sandbox: str
    spent: str
    context: str
    is_nearly_full: bool


def of(about: extensions.SessionInfo | None, *, provider: str = "", model: str | None = None, policy: str = "") -> Meter:
    """Before there is a session, what it would begin with."""
    if about is None:
        return Meter(model or provider, policy, "", "", "", False)
    if about.terminal is not None:
        return Meter(about.terminal.tool, about.policy, about.sandbox, "", "", False)
    name = about.model or about.provider
    thinking = f" ({about.thinking})" if about.thinking and about.thinking != "off" else ""
    used, window = about.contextTokens, about.contextWindow
    return Meter(
        f"{name}{thinking}",
        about.policy,
        about.sandbox,
        _spent(about.usage),
        f"{bar(used, window)} {used / window:.0%}" if window else f"{amounts.tokens(used)} in context" if used else "",
        bool(window) and used / (window or 1) >= _FULL,
    )


def _spent(usage: extensions.Usage) -> str:
    if not usage.calls:
        return ""
    spent = f"↑{amounts.tokens(usage.inputTokens)} ↓{amounts.tokens(usage.outputTokens)}"
    if usage.unpricedCalls == usage.calls or not usage.cost:
        return spent
    return f"{spent} {'≥' if usage.unpricedCalls else ''}{amounts.dollars(usage.cost)}"


def bar(used: int, window: int) -> str:
    filled = min(BAR, max(0, round(BAR * used / window))) if window > 0 else 0
    if used > 0 and not filled:
        filled = 1
    return "▰" * filled + "▱" * (BAR - filled)
