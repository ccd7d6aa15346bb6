"""Whatever a handler raised, in the words that go on the wire: one door for peers' mistakes and for our own."""

import logging

from switchtower.core import errors
from switchtower.protocols.pi import strings
from switchtower.protocols.pi.order import ports

log = logging.getLogger(__name__)


def describe_failure(problem: BaseException, command: str) -> str:
    if isinstance(problem, ports.PiCommandError):
        return problem.error
    if isinstance(problem, errors.CoreError):
        return problem.message
    log.error("pi command `%s` failed", command, exc_info=problem)
    return strings.INTERNAL
