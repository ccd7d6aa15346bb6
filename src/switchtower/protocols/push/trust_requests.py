"""The requests of `trust_messages`, for one client: the owner's, on the daemon's own socket. No process of a run trusts a
folder."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from switchtower.protocols.push import inbound, trust_messages

if TYPE_CHECKING:
    from switchtower.protocols.push.peer import PushPeer


def handlers(peer: "PushPeer") -> dict[str, Callable[[inbound.Request], None]]:
    requests = _Trust(peer)
    return {
        "list_trusted_folders": requests.list_folders,
        "trust_folder": requests.trust,
        "forget_folder": requests.forget,
    }


class _Trust:
    def __init__(self, peer: "PushPeer") -> None:
        self._peer = peer

    def list_folders(self, request: inbound.Request) -> None:
        self._peer.check_operates()
        workshop = self._peer.tower.workshop

        async def listing() -> Struct:
            folders = await asyncio.to_thread(workshop.trusted_folders)
            return trust_messages.TrustedFolders(
                [trust_messages.TrustedFolder(folder.path, folder.since_ms, folder.by) for folder in folders]
            )

        self._peer.answer_later(request, listing)

    def trust(self, request: inbound.Request) -> None:
        assert isinstance(request.payload, trust_messages.TrustFolder)
        self._peer.check_operates()
        workshop, path, actor = self._peer.tower.workshop, request.payload.path, self._peer.actor

        async def trusting() -> Struct:
            return trust_messages.FolderTrusted(await asyncio.to_thread(workshop.trust_folder, path, actor))

        self._peer.answer_later(request, trusting)

    def forget(self, request: inbound.Request) -> None:
        assert isinstance(request.payload, trust_messages.ForgetFolder)
        self._peer.check_operates()
        workshop, path = self._peer.tower.workshop, request.payload.path

        async def forgetting() -> Struct:
            return trust_messages.FolderForgotten(await asyncio.to_thread(workshop.forget_folder, path))

        self._peer.answer_later(request, forgetting)
