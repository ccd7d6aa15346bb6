"""Parts of a session in the words that all front ends use for them. Pure."""

from switchtower.protocols.push import extensions, messages


def format_rule(rule: extensions.Rule) -> str:
    about = " ".join(part for part in (rule.path, rule.command) if part is not None)
    return f"{rule.effect} {rule.tool or 'any tool'}" + (f": {about}" if about else "")


def format_limits(limits: messages.Limits) -> str:
    parts = [
        f"{limits.maxTurns} turns" if limits.maxTurns is not None else "",
        f"{limits.maxTokens:,} tokens" if limits.maxTokens is not None else "",
        f"${limits.maxCost:g}" if limits.maxCost is not None else "",
        f"{limits.maxMinutes:g} minutes" if limits.maxMinutes is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def format_context(tokens: int, window: int | None) -> str:
    return f"{tokens:,} of {window:,} tokens ({tokens / window:.0%})" if window else f"{tokens:,} tokens"
