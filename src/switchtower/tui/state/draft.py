"""A session that is not there yet: what it will begin with when the first message is sent. Pure."""

from typing import Any, Final, cast

from msgspec import Struct

from switchtower import config
from switchtower.config import POLICIES
from switchtower.protocols.push import messages

AUTO: Final = "auto"


class SessionDraft(Struct, frozen=True):
    root: str
    provider: str = AUTO
    model: str | None = None
    policy: messages.PolicyProfile | None = None
    thinking: messages.ThinkingLevel | None = None
    preset: str | None = None

    @classmethod
    def from_settings(cls, settings: config.Settings, root: str) -> "SessionDraft":
        # The configured model is the configured provider's. A policy is said only where somebody chose one: the daemon may
        # have been started with something stricter than the default.
        return cls(
            root=root,
            provider=settings.provider,
            model=settings.model if settings.provider != AUTO else None,
            policy=cast(Any, settings.policy) if settings.policy != POLICIES[1] else None,
        )

    def with_preset(self, name: str) -> "SessionDraft":
        """The preset says the rest; but what is the strictest stays: no file of a workspace is to lift that."""
        return SessionDraft(self.root, policy=self.policy if self.policy == POLICIES[0] else None, preset=name)

    def build_request(
        self, repo: messages.Repo, *, command: str | None = None, size: tuple[int, int] | None = None
    ) -> messages.StartSession:
        """With `command`, a program in a terminal of this size."""
        if command is not None:
            cols, rows = size or (None, None)
            return messages.StartSession(
                mode="interactive",
                provider="terminal",
                sandboxProvider=AUTO,
                repo=repo,
                metadata={"source": "tui"},
                engine="pty",
                command=command,
                cols=cols,
                rows=rows,
            )
        return messages.StartSession(
            mode="interactive",
            provider=self.provider,
            sandboxProvider=AUTO,
            repo=repo,
            metadata={"source": "tui"},
            model=self.model,
            policy=self.policy,
            thinking=self.thinking,
            preset=self.preset,
            allowDemo=True,
        )
