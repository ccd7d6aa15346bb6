"""The next version: a copy of our program that calls itself so, with one more migration. And how a node is emptied."""

import asyncio
import re
import shutil
from pathlib import Path
from typing import Any

from tests.crash.tower_process import PushConnectionLost
from tests.nodes.fleet import TIMEOUT, NodeProcess, ProcessCluster

import switchtower

NEXT = "99.0.0"
TABLE = "next_versions_own"


def make_next_version(folder: Path) -> Path:
    """Where it is to be imported from."""
    package = folder / "next" / "switchtower"
    ours = Path(switchtower.__file__).parent
    shutil.copytree(ours, package, ignore=shutil.ignore_patterns("web_dist"))
    init = package / "__init__.py"
    text, changed = re.subn(r'__version__ = "[^"]*"', f'__version__ = "{NEXT}"', init.read_text())
    assert changed == 1
    init.write_text(text)
    migrations = package / "stores" / "postgres" / "migrations"
    number = max(int(file.name[:4]) for file in migrations.glob("*.sql")) + 1
    (migrations / f"{number:04}_next.sql").write_text(
        f"CREATE TABLE {TABLE} (id bigint PRIMARY KEY);\nALTER TABLE sessions ADD COLUMN next_word text;\n"
    )
    return package.parent


async def drain(process_cluster: ProcessCluster, node: NodeProcess, *, wait_s: float = 1) -> dict[str, Any]:
    """Clients are let go on the way, also who asked: asked again, it says what came of it the first time."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            client = await process_cluster.connect(node)
            try:
                return await client.ask("drain_node", {"waitSeconds": wait_s})
            except PushConnectionLost:
                await asyncio.sleep(0.05)
            finally:
                client.close()
