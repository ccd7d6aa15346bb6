"""Where the programs are that we run ourselves, such as git. Never one of the current folder: that may be a workspace's."""

import os
import shutil
from pathlib import PurePath


def find_program(program: str) -> str | None:
    """Its whole path; `None` when it is not installed. A search path may have `.` in it, which is passed over."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which(program, path=os.pathsep.join(folder for folder in folders if PurePath(folder).is_absolute()))
