"""The pi protocol's house: what all its clients share. A skeleton for now."""

from collections.abc import Callable

from switchtower.core import tower
from switchtower.core.access import Access
from switchtower.protocols.pi.settings import PiSettings
from switchtower.transports.stream import Receiver


class House:
    def __init__(self, tower_: tower.Tower, settings: PiSettings, *, version: str, now_ms: Callable[[], int]) -> None:
        self.tower = tower_

    async def open(self) -> None:
        raise NotImplementedError

    def accept(self, access: Access, *, namespace: str = "", lifecycle: bool = True) -> Receiver:
        raise NotImplementedError

    def refuse(self, code: int, reason: str) -> Receiver:
        raise NotImplementedError

    async def shut_down(self, timeout_s: float) -> None:
        raise NotImplementedError
