"""The official SDK, loaded when the first server is wanted: that takes about a second, so it happens on a thread.

Its own log is silenced. It quotes what servers say and where they are, tokens in addresses included; what people need to know
is reported by this room instead.
"""

import importlib
import logging

_LOGGERS = ("mcp", "client", "httpx2", "httpcore2")
"""`client` is the SDK's too."""


def load_sdk() -> None:
    """Blocks; does nothing the second time."""
    for name in ("mcp", "mcp.client.streamable_http", "httpx2"):
        importlib.import_module(name)
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
