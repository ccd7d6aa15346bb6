"""A screen as an SVG, compared with the one that was drawn before. `DRAW=1 pytest tests/tui` draws them anew; what changed is
then for a person to look at.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot

FOLDER = Path(__file__).parent / "__snapshots__" / "test_pictures"
Before = Callable[[Pilot[Any]], Awaitable[None]]


def draw_app(app: App[Any], size: tuple[int, int], before: Before) -> str:
    async def draw() -> str:
        async with app.run_test(size=size) as pilot:
            await before(pilot)
            return app.export_screenshot()

    # The names inside are a hash of everything, and would differ wherever anything does.
    return re.sub(r"terminal-\d+", "terminal", asyncio.run(draw())) + "\n"


class SvgSnapshots:
    def __init__(self, name: str, tmp_path: Path) -> None:
        self._path = FOLDER / f"{name}.svg"
        self._tmp_path = tmp_path

    def __call__(self, app: App[Any], *, terminal_size: tuple[int, int] = (80, 24), run_before: Before) -> bool:
        picture = draw_app(app, terminal_size, run_before)
        if os.environ.get("DRAW"):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(picture)
            return True
        if not self._path.exists() or self._path.read_text() != picture:
            new = self._tmp_path / self._path.name
            new.write_text(picture)
            pytest.fail(f"{self._path.name} is not what it was: compare it with {new}")
        return True


@pytest.fixture
def snap_compare(request: pytest.FixtureRequest, tmp_path: Path) -> SvgSnapshots:
    return SvgSnapshots(request.node.name, tmp_path)
