"""How the workbench says no: one error, whose message is relay's error string. Short, without a path of this machine and
without a word of any file's content.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from switchtower.tools import outcome
from switchtower.tools.files import scope

# relay, interop: these strings exactly.
MUST_BE_RELATIVE = "path must be relative"
CONTAINS_PARENT = "path contains .."
ESCAPES = "path escapes run cwd"

NO_CWD = "the run's cwd cannot be opened"
NO_SUCH_FILE = "no such file"
IS_A_FOLDER = "is a directory"
NOT_A_FOLDER = "not a directory"
NOT_REGULAR = "not a regular file"
NOT_TEXT = "not a UTF-8 file"
TOO_LARGE = "file is too large"
TOO_LONG = "path is too long"
SECRET = "path may hold secrets"  # noqa: S105 - a sentence

_BY_NUMBER = {
    errno.ENOENT: NO_SUCH_FILE,
    errno.EISDIR: IS_A_FOLDER,
    errno.ENOTDIR: NOT_A_FOLDER,
    errno.ENAMETOOLONG: TOO_LONG,
    errno.ENXIO: NOT_REGULAR,
    errno.ELOOP: ESCAPES,
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
}


class OperationRefused(Exception):
    """It cannot or may not be done."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turns what `scope` and the system say about a file into relay's strings."""
    try:
        yield
    except scope.PathRefused as refused:
        # The words of the path were looked at before: what is left is a link out, or one that turned under our hands.
        raise OperationRefused(ESCAPES) from refused
    except outcome.ToolFailed as failed:
        raise OperationRefused(NO_CWD if failed.type is outcome.ToolErrorType.SANDBOX_UNREACHABLE else NOT_REGULAR) from failed
    except OSError as error:
        raise OperationRefused(_BY_NUMBER.get(error.errno or 0, (error.strerror or "it cannot be read").lower())) from error
