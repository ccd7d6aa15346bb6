"""SQLite's failures in the port's words: what the disk did, what another process did, and what is our own bug."""

import sqlite3

from switchtower.core import errors


def is_disk_error(problem: Exception) -> bool:
    """Full, unreadable, locked or damaged. Not what one append brought on itself, such as a broken constraint."""
    return isinstance(problem, OSError) or type(problem) in (
        sqlite3.OperationalError,
        sqlite3.DatabaseError,
        sqlite3.InternalError,
    )


def translate_error(problem: Exception) -> Exception:
    """The problem as the caller hears of it. What is not the disk's is passed on as it is."""
    if not is_disk_error(problem):
        return problem
    unavailable = errors.JournalUnavailable(str(problem))
    unavailable.__cause__ = problem
    return unavailable
