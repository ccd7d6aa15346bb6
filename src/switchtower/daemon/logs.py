"""The daemon's log: one line an entry, secrets redacted whoever wrote them, in a file that does not grow without bound."""

import logging
import logging.handlers
from pathlib import Path

from switchtower.core import redact

MAX_BYTES = 5_000_000
KEPT_FILES = 3


class RedactingFormatter(logging.Formatter):
    """Redacts the finished line, so that tracebacks and other libraries' messages are covered too."""

    def __init__(self, redactor: redact.Redactor) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.redact_text(super().format(record))


def configure_logging(path: Path, level: str, redactor: redact.Redactor) -> None:
    file = logging.handlers.RotatingFileHandler(path, maxBytes=MAX_BYTES, backupCount=KEPT_FILES, delay=True)
    path.touch(mode=0o600)
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.handlers.clear()
    file.setFormatter(RedactingFormatter(redactor))
    root.addHandler(file)
