"""Why a store cannot be looked at from outside. Every store's tools tell it in the same words."""


class StoreUnreadable(Exception):
    """Why a file or a database cannot be read at all, with a remedy."""

    def __init__(self, problem: str, *, hint: str) -> None:
        super().__init__(f"{problem}; hint: {hint}")
        self.problem = problem
        self.hint = hint
