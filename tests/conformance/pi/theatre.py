"""Models that give the answers that a test has written: one HTTP server for all, and a daemon that is configured to use it."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from msgspec import Struct
from tests.conformance.pi.stage import CheckedClient, PiDaemon

from switchtower.testing import model_script as script
from switchtower.testing.model_server import ModelServer, run_in_thread

SCRIPTED_KEY = "sk-test-0123456789abcdefghijklmnop"


class ScriptedModels(Struct):
    daemon: PiDaemon
    plays: dict[str, deque[script.ScriptedAnswer]] = {}
    server: ModelServer | None = None

    def answer(self, request: script.ReceivedRequest) -> script.ScriptedAnswer:
        play = self.plays[request.body["model"]]
        return play.popleft() if len(play) > 1 else play[0]

    async def start_session(self, pi: CheckedClient, *answers: script.ScriptedAnswer, cwd: object = None) -> str:
        """Starts a session whose model gives these answers and then repeats the last one."""
        model = f"m-{uuid4().hex}"
        self.plays[model] = deque(answers)
        session_id = await pi.start_session(cwd)
        await pi.execute("set_model", sessionId=session_id, provider="openai", modelId=model)
        return session_id


@contextmanager
def open_models(**settings: Any) -> Iterator[ScriptedModels]:
    theatre = ScriptedModels(PiDaemon(**settings))
    with pytest.MonkeyPatch.context() as patch, run_in_thread(theatre.answer) as server:
        theatre.server = server
        patch.setenv("FAKE_KEY", SCRIPTED_KEY)
        (theatre.daemon.home / "config.toml").write_text(
            f'[models.openai]\nprovider = "openai"\nmodel = "m-1"\nbase_url = "{server.url}"\nkey_env = "FAKE_KEY"\n'
            "price_in = 1.0\nprice_out = 10.0\ncontext_window = 2000\n"
        )
        try:
            theatre.daemon.start()
            yield theatre
        finally:
            theatre.daemon.discard()
