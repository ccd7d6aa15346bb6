"""The page, built from its sources as they are now: once a test session, whoever of the workers comes first."""

import fcntl
import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "web"
AXE = SOURCES / "node_modules" / "axe-core" / "axe.min.js"
BUILD_TIMEOUT = 120


def find_missing_tool() -> str | None:
    """Why it cannot be built here."""
    if shutil.which("npm") is None:
        return "there is no Node to build the page with"
    if not (SOURCES / "node_modules" / "vite").is_dir():
        return "the page's tools are not installed: `make web` does it"
    return None


def build_page(shared: Path) -> Path:
    """The folder to serve, below one that all workers know."""
    folder = shared / "page"
    with (shared / "page.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the others wait for the first, and find it built
        if not (shared / "page.built").exists():
            command = ["npm", "run", "--silent", "build", "--", "--logLevel", "warn", "--outDir", str(folder), "--emptyOutDir"]
            done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=BUILD_TIMEOUT, check=False)
            assert done.returncode == 0, f"the page could not be built: {done.stdout}{done.stderr}"
            (shared / "page.built").touch()
    return folder
