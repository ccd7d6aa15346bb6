"""How work on snapshots and worktrees fails: one error, with a remedy."""


class GitUnavailable(Exception):
    """It cannot be done. The message says why; the hint says what to do about it."""

    def __init__(self, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{reason}; hint: {hint}" if hint else reason)
        self.reason = reason
        self.hint = hint
