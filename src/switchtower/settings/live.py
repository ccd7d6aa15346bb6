"""The settings in force while the daemon runs. A changed `config.toml` is read when a value is needed next; what cannot change in
a running daemon stays as it was at the start."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from switchtower import config
from switchtower.settings.sources import ConfigError

log = logging.getLogger(__name__)

Apply = Callable[[config.Settings], None]


class LiveSettings:
    def __init__(self, settings: config.Settings) -> None:
        self._started_with = settings
        self._current = settings
        self._version = self._get_file_version()
        self._appliers: list[Apply] = []
        self._reading = threading.Lock()

    @property
    def current(self) -> config.Settings:
        """Costs one look at the file's date."""
        if self._get_file_version() != self._version:
            self._reload()
        return self._current

    def on_change(self, apply: Apply) -> None:
        """`apply` gets the new settings before they are in force, and raises `ConfigError` to keep the old ones."""
        self._appliers.append(apply)

    def _reload(self) -> None:
        with self._reading:
            version = self._get_file_version()
            if version == self._version:
                return
            self._version = version  # also when it is refused: one warning a change
            try:
                found = self._started_with.reload()
                fresh = replace(self._started_with, **{name: getattr(found, name) for name in config.LIVE})
                for apply in self._appliers:
                    apply(fresh)
            except ConfigError as problem:
                log.warning("the changed configuration is not used: %s", problem)
                for apply in self._appliers:
                    apply(self._current)
                return
            self._current = fresh
            log.info("read the changed %s", self._started_with.config_file)

    def _get_file_version(self) -> tuple[int, ...] | None:
        try:
            found = self._started_with.config_file.stat()
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino)
