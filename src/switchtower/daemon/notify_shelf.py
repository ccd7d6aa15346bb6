"""Where the keys and subscriptions of Web Push are kept: a folder of the owner's, or what several nodes share."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from switchtower.daemon import private_files


class SubscriptionStore(Protocol):
    async def get_or_create(self, name: str, make: Callable[[], bytes]) -> bytes: ...

    async def read(self, name: str) -> bytes | None: ...

    async def update(self, name: str, update: Callable[[bytes | None], bytes]) -> None:
        """Nobody else changes it between what `update` is given and what it gives."""
        ...


class FolderSubscriptionStore:
    """Implements `Shelf` for a daemon that is alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = asyncio.Lock()

    async def get_or_create(self, name: str, make: Callable[[], bytes]) -> bytes:
        async with self._lock:  # two who came first together would make two
            kept = await asyncio.to_thread(private_files.read_or_create_private, self._folder / name, lambda: make().decode())
            return kept.encode()

    async def read(self, name: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return await asyncio.to_thread((self._folder / name).read_bytes)
        return None

    async def update(self, name: str, update: Callable[[bytes | None], bytes]) -> None:
        async with self._lock:
            await asyncio.to_thread(private_files.write_private, self._folder / name, update(await self.read(name)))
