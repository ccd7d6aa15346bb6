"""Parts of a session in the words that all front ends use for them. Pure."""

from switchtower.protocols.push import extensions, messages


def rule(rule_: extensions.Rule) -> str:
    about = " ".join(part for part in (rule_.path, rule_.command) if part is not None)
    return f"{rule_.effect} {rule_.tool or 'any tool'}" + (f": {about}" if about else "")


def limits(limits_: messages.Limits) -> str:
    parts = [
        f"{limits_.maxTurns} turns" if limits_.maxTurns is not None else "",
        f"{limits_.maxTokens:,} tokens" if limits_.maxTokens is not None else "",
        f"${limits_.maxCost:g}" if limits_.maxCost is not None else "",
        f"{limits_.maxMinutes:g} minutes" if limits_.maxMinutes is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def context(tokens: int, window: int | None) -> str:
    return f"{tokens:,} of {window:,} tokens ({tokens / window:.0%})" if window else f"{tokens:,} tokens"
