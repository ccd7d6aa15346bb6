"""The pictures of the terminal UI that the README shows: `python -m tests.tui.readme docs/images`, or `make pictures`."""

import sys
import tempfile
from pathlib import Path

from tests.tui import pictures, still
from tests.tui.test_pictures import RUNNING, WRITING, type_before

from switchtower import config

SIZE = (110, 32)


def draw(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        settings = config.Settings(home=Path(home))
        conversation = pictures.draw_app(still.make_frozen_app(settings), SIZE, type_before())
        (folder / "terminal-conversation.svg").write_text(conversation)
        approval = pictures.draw_app(still.make_frozen_app(settings, about=RUNNING, story=WRITING), SIZE, type_before(opens=True))
        (folder / "terminal-approval.svg").write_text(approval)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
