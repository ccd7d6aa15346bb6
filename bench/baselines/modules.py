"""Which libraries `tower serve` has loaded when it begins to listen: everything but our own. The daemon stops at once."""

import os
import signal
import sys
from pathlib import Path

from switchtower import config
from switchtower.cli import main as _command_line  # noqa: F401 - its libraries count too
from switchtower.cli.commands import serve as _serve  # noqa: F401
from switchtower.daemon import app

if __name__ == "__main__":

    def announce(_: object) -> None:
        libraries = [name for name in sys.modules if name.split(".")[0] not in ("switchtower", "bench", "__main__")]
        Path(sys.argv[1]).write_text("\n".join(libraries))
        os.kill(os.getpid(), signal.SIGTERM)

    app.run_daemon(config.load(), announce)
