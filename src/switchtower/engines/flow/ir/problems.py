"""What is wrong with a flow: sentences that say where, and how it is put right. Pure."""

from msgspec import Struct

MOST = 100
"""Problems that are told. A hostile document has as many as it likes."""
_LONGEST_SHOWN = 60
_LONGEST_PATH = 500


class FlowProblem(Struct, frozen=True, kw_only=True):
    path: str
    """Where in the document: `$.graph.nodes[2].retry.max`."""
    message: str
    node: str | None = None
    """The id of the node it is about."""

    def __str__(self) -> str:
        return f"node `{self.node}`: {self.message}" if self.node is not None else self.message


class InvalidFlow(Exception):
    """The document is no flow that could be run."""

    def __init__(self, problems: list[FlowProblem], *, left_out: int = 0) -> None:
        super().__init__(problems, left_out)
        self.problems = problems
        self.left_out = left_out
        """How many more there are."""

    def __str__(self) -> str:
        lines = [f"{problem} (at {problem.path})" for problem in self.problems]
        return "\n".join([*lines, f"and {self.left_out} more"] if self.left_out else lines)


class FlowProblems:
    """Collects them in the order of the checks, and counts those that are too many."""

    def __init__(self) -> None:
        self._problems: list[FlowProblem] = []
        self._found = 0

    def __bool__(self) -> bool:
        return self._found > 0

    @property
    def listed(self) -> list[FlowProblem]:
        """Without those that were only counted."""
        return self._problems

    @property
    def is_full(self) -> bool:
        return self._found >= MOST

    def add(self, path: str, message: str, node: str | None = None) -> None:
        self._found += 1
        if self._found <= MOST:
            path = path if len(path) <= _LONGEST_PATH else path[:_LONGEST_PATH] + "…"
            self._problems.append(FlowProblem(path=path, message=message, node=None if node is None else clip_name(node)))

    def raise_any(self) -> None:
        if self._found:
            raise InvalidFlow(self._problems, left_out=self._found - len(self._problems))


def clip_name(text: str) -> str:
    """A name from a document as a sentence can carry it: one line, printable, and not a page long."""
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[: _LONGEST_SHOWN + 1])
    return shown if len(text) <= _LONGEST_SHOWN else shown[:_LONGEST_SHOWN] + "…"


def join_path(path: str, key: str) -> str:
    """The path of an object's member: `$.a.b`, or `$.a["b c"]` where the name is no plain word."""
    plain = key.replace("_", "a").replace("-", "a")
    return (
        f"{path}.{key}" if plain.isalnum() and plain.isascii() and len(key) <= _LONGEST_SHOWN else f'{path}["{clip_name(key)}"]'
    )
