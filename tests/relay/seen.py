"""What these tests see of a hub from outside: which numbers an app was told, and with which words somebody is turned away."""

from typing import Any

import pytest
from tests.relay.stage import DaemonView

from switchtower.testing.relay_client import RelayApp
from switchtower.testing.wire import UpgradeRefused

PASSWORD = "correct horse battery staple"


async def get_refusal_status(opening: Any) -> int:
    """With which status the hub refuses the connection."""
    with pytest.raises(UpgradeRefused) as refusal:
        await opening
    return refusal.value.status


def collect_seqs(app: RelayApp, run_id: str) -> list[int]:
    return [frame["seq"] for frame in app.list_events(run_id) if "seq" in frame]


async def read_up_to(app: RelayApp, run_id: str, seq: int) -> list[int]:
    """Reads until the app was told this number; all that it was told of the run."""
    await app.wait_for(lambda frame: frame.get("run_id") == run_id and frame.get("seq") == seq)
    return collect_seqs(app, run_id)


async def create_user(hub: DaemonView, name: str) -> str:
    """A user who has logged in; the token."""
    await hub.http.request("POST", "/users", {"name": name, "password": PASSWORD})
    answer = await hub.http.login(name, PASSWORD)
    assert answer.status == 200, answer
    return str(answer.json["access_token"])
