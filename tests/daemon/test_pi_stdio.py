"""The daemon's own stdin and stdout: the end of the input ends it, but not before what was asked is answered."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.daemon.echo_house import EchoConnection, EchoPiServer

from switchtower import config
from switchtower.core.roles import Access
from switchtower.daemon.pi import StdioDescriptors, StdioPiClient


class SlowEchoConnection(EchoConnection):
    """Answers when it is told to."""

    frames: list[bytes]

    def on_frames(self, frames: list[bytes]) -> None:
        self.frames = frames
        self.asked = asyncio.Event()

    def has_pending_responses(self) -> bool:
        self.asked.set()
        return bool(self.frames)

    def answer(self) -> None:
        super().on_frames(self.frames)
        self.frames = []


class SlowPiServer(EchoPiServer):
    def accept(self, access: Access, *, namespace: str = "", lifecycle: bool = True, cwd: str | None = None) -> EchoConnection:
        return SlowEchoConnection(self, {"namespace": namespace, "cwd": cwd})


class PiPipes:
    def __init__(self, echo_pi_server: EchoPiServer, home: Path, shutdown_timeout: float) -> None:
        near_input, self.input = os.pipe()
        self.output, near_output = os.pipe()
        self.ended = asyncio.Event()
        settings = config.Settings(home=home, shutdown_timeout=shutdown_timeout)
        self.stdio = StdioPiClient(
            StdioDescriptors(near_input, near_output), settings, echo_pi_server, cwd="/here", ended=self.ended.set
        )
        self.descriptors = [near_input, near_output, self.output]


@pytest.fixture
async def pipe_ends(home: Path, request: pytest.FixtureRequest) -> AsyncIterator[PiPipes]:
    house, shutdown_timeout = request.param
    made = PiPipes(house(), home, shutdown_timeout)
    made.stdio.open()
    async with asyncio.timeout(60):
        yield made
    await made.stdio.close()
    for fd in made.descriptors:
        os.close(fd)


@pytest.mark.parametrize("pipe_ends", [(EchoPiServer, 3_600)], indirect=True)
async def test_the_end_of_the_input_is_the_end(pipe_ends: PiPipes) -> None:
    os.write(pipe_ends.input, b"question\n")
    os.close(pipe_ends.input)
    await pipe_ends.ended.wait()
    await pipe_ends.stdio.close()
    ready, answer = os.read(pipe_ends.output, 65_536).splitlines()
    assert b'"server_ready"' in ready
    assert answer == b"question"


@pytest.mark.parametrize("pipe_ends", [(SlowPiServer, 3_600)], indirect=True)
async def test_what_is_owed_is_waited_for(pipe_ends: PiPipes) -> None:
    os.write(pipe_ends.input, b"question\n")
    os.close(pipe_ends.input)
    ready = await asyncio.to_thread(os.read, pipe_ends.output, 65_536)
    assert b'"cwd": "/here"' in ready
    peer = pipe_ends.stdio._receiver
    assert isinstance(peer, SlowEchoConnection)
    for _ in range(3):
        while not hasattr(peer, "asked"):
            await asyncio.sleep(0)
        peer.asked.clear()
        await peer.asked.wait()
    assert not pipe_ends.ended.is_set()
    peer.answer()
    await pipe_ends.ended.wait()
    assert await asyncio.to_thread(os.read, pipe_ends.output, 65_536) == b"question\n"


@pytest.mark.parametrize("pipe_ends", [(SlowPiServer, 0.1)], indirect=True)
async def test_but_not_for_ever(pipe_ends: PiPipes) -> None:
    os.write(pipe_ends.input, b"question\n")
    os.close(pipe_ends.input)
    await pipe_ends.ended.wait()
    peer = pipe_ends.stdio._receiver
    assert isinstance(peer, SlowEchoConnection)
    assert peer.has_pending_responses()
