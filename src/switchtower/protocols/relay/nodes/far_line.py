"""A host that is connected to another node, as this one speaks to it."""

import asyncio

import msgspec

from switchtower.protocols.relay import errors, messages
from switchtower.protocols.relay.hub.roster import OnSent
from switchtower.protocols.relay.nodes import asking, letters
from switchtower.transports.mesh.ports import Mesh


class RemoteHostChannel:
    """Implements `roster.Line`."""

    def __init__(self, mesh: Mesh, node_id: str, host_id: str) -> None:
        self._mesh = mesh
        self._node_id = node_id
        self._host_id = host_id

    def post(self, frame: bytes, done: OnSent) -> None:
        def told(outcome: letters.NodeReply | errors.RelayError) -> None:
            if isinstance(outcome, errors.RelayError):
                done(outcome)
            else:
                done(None if outcome.ok else errors.HostOffline())

        asking.send_request(self._mesh, self._node_id, letters.HOST_SEND, letters.HostFrameMessage(self._host_id, frame), told)

    async def call(self, frame: bytes, request_id: str, timeout_s: float | None) -> messages.Response:
        letter = letters.HostFrameMessage(self._host_id, frame, request_id, timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await asking.request(self._mesh, self._node_id, letters.HOST_CALL, letter)
        except TimeoutError:
            raise errors.HostOffline(errors.HOST_SILENT) from None
        return msgspec.convert(answer.result, messages.Response)
