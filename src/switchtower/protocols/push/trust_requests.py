"""The requests of `trust_messages`, for one client: the owner's, on the daemon's own socket. No process of a run trusts a
folder."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from switchtower.protocols.push import inbound, trust_messages

if TYPE_CHECKING:
    from switchtower.protocols.push.peer import PushConnection


def make_trust_handlers(connection: "PushConnection") -> dict[str, Callable[[inbound.PushRequest], None]]:
    requests = _TrustRequests(connection)
    return {
        "list_trusted_folders": requests.list_trusted_folders,
        "trust_folder": requests.trust_folder,
        "forget_folder": requests.forget_folder,
    }


class _TrustRequests:
    def __init__(self, connection: "PushConnection") -> None:
        self._connection = connection

    def list_trusted_folders(self, request: inbound.PushRequest) -> None:
        self._connection.check_is_operator()
        workshop = self._connection.tower.host_services

        async def listing() -> Struct:
            folders = await asyncio.to_thread(workshop.list_trusted_folders)
            return trust_messages.TrustedFolders(
                [trust_messages.TrustedFolder(folder.path, folder.since_ms, folder.by) for folder in folders]
            )

        self._connection.respond_later(request, listing)

    def trust_folder(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, trust_messages.TrustFolder)
        self._connection.check_is_operator()
        workshop, path, actor = self._connection.tower.host_services, request.payload.path, self._connection.actor

        async def trusting() -> Struct:
            return trust_messages.FolderTrusted(await asyncio.to_thread(workshop.trust_folder, path, actor))

        self._connection.respond_later(request, trusting)

    def forget_folder(self, request: inbound.PushRequest) -> None:
        assert isinstance(request.payload, trust_messages.ForgetFolder)
        self._connection.check_is_operator()
        workshop, path = self._connection.tower.host_services, request.payload.path

        async def forgetting() -> Struct:
            return trust_messages.FolderForgotten(await asyncio.to_thread(workshop.forget_folder, path))

        self._connection.respond_later(request, forgetting)
