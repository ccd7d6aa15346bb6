"""The settings of a running daemon. A changed `config.toml` is read when a value is needed next; settings that cannot change
in a running daemon keep their value from the start.
"""

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
        """Returns the settings; costs one check of the file's modification time."""
        if self._get_file_version() != self._version:
            self._reload()
        return self._current

    def on_change(self, apply: Apply) -> None:
        """`apply` gets the new settings before they take effect, and raises `ConfigError` to keep the old ones."""
        self._appliers.append(apply)

    def _reload(self) -> None:
        with self._reading:
            version = self._get_file_version()
            if version == self._version:
                return
            self._version = version  # also when the file is refused: one warning per change
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
