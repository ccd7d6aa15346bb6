"""Asks the person at the terminal about an approval, and stops asking when somebody else has decided it."""

import asyncio
import os
import sys

from switchtower.cli import console
from switchtower.client import errors
from switchtower.client.client import Client
from switchtower.client.frames import Event
from switchtower.protocols.push import messages


def is_possible() -> bool:
    return os.isatty(0) and os.isatty(2)


class Prompt:
    def __init__(self, client: Client, session_id: str, run_id: str) -> None:
        self._client = client
        self._session_id = session_id
        self._run_id = run_id
        self._asking: asyncio.Task[None] | None = None
        self._approval_id: str | None = None

    def ask(self, approval: messages.ApprovalRequired) -> None:
        self.dismiss()
        self._approval_id = approval.approvalId
        self._asking = asyncio.get_running_loop().create_task(self._ask(approval))

    def saw(self, event: Event) -> None:
        match event.payload:
            case messages.ApprovalReceived(approval_id) if approval_id == self._approval_id:
                self.dismiss()
            case messages.RunComplete():
                self.dismiss()

    def dismiss(self) -> None:
        if self._asking is not None and not self._asking.done():
            self._asking.cancel()
        self._approval_id = None

    async def _ask(self, approval: messages.ApprovalRequired) -> None:
        print("  approve? [y/N] ", end="", file=sys.stderr, flush=True)
        answer = (await _line_from_terminal()).strip().lower()
        self._approval_id = None
        decision: messages.ApprovalDecision = "approve" if answer in ("y", "yes") else "deny"
        try:
            await self._client.decide(self._session_id, self._run_id, approval.approvalId, decision)
        except errors.ClientError as problem:
            console.fail(str(problem))


async def _line_from_terminal() -> str:
    """A terminal hands over whole lines; its end counts as an empty one."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        if not arrived.done():
            arrived.set_result(os.read(0, 4_096))

    loop.add_reader(0, read)
    try:
        return (await arrived).decode(errors="replace")
    finally:
        loop.remove_reader(0)
