"""Models that play what a test wrote: one HTTP server for all, behind a daemon that is configured for it."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from msgspec import Struct
from tests.conformance.pi.stage import CheckedClient, PiDaemon

from switchtower.testing import model_server_script as script
from switchtower.testing.model_server import ModelServer, in_thread

KEY = "sk-test-0123456789abcdefghijklmnop"


class Theatre(Struct):
    daemon: PiDaemon
    plays: dict[str, deque[script.Answer]] = {}
    server: ModelServer | None = None

    def answer(self, request: script.Received) -> script.Answer:
        play = self.plays[request.body["model"]]
        return play.popleft() if len(play) > 1 else play[0]

    async def session(self, pi: CheckedClient, *answers: script.Answer, cwd: object = None) -> str:
        """A session whose model gives these answers, the last one again and again."""
        model = f"m-{uuid4().hex}"
        self.plays[model] = deque(answers)
        session_id = await pi.session(cwd)
        await pi.do("set_model", sessionId=session_id, provider="openai", modelId=model)
        return session_id


@contextmanager
def opened(**settings: Any) -> Iterator[Theatre]:
    theatre = Theatre(PiDaemon(**settings))
    with pytest.MonkeyPatch.context() as patch, in_thread(theatre.answer) as server:
        theatre.server = server
        patch.setenv("FAKE_KEY", KEY)
        (theatre.daemon.home / "config.toml").write_text(
            f'[models.openai]\nprovider = "openai"\nmodel = "m-1"\nbase_url = "{server.url}"\nkey_env = "FAKE_KEY"\n'
            "price_in = 1.0\nprice_out = 10.0\ncontext_window = 2000\n"
        )
        try:
            theatre.daemon.start()
            yield theatre
        finally:
            theatre.daemon.discard()
