"""A tool's output as people saw it come, so that only the rest of its result is shown at the end. Pure.

The daemon leaves the last moments to the result, and skips over what comes too fast.
"""

MAX_LINES = 40
"""Of what nobody saw come: its end is what matters, and the whole is in the result."""
_ANCHOR = 200


class StreamedToolOutput:
    def __init__(self) -> None:
        self._seen = ""

    @property
    def is_open(self) -> bool:
        return bool(self._seen)

    def append(self, text: str) -> None:
        self._seen += text

    def take_rest(self, result: str) -> str:
        """What the result has beyond that, ending with its line. The next output starts anew."""
        seen, self._seen = self._seen, ""
        rest = _take_last_lines(_cut_seen(seen, result))
        return rest if rest.endswith("\n") or not rest else f"{rest}\n"


def _cut_seen(seen: str, result: str) -> str:
    if result.startswith(seen):
        return result[len(seen) :]
    # Something was skipped on the way, so look for where the two meet.
    anchor = seen[-_ANCHOR:]
    where = result.rfind(anchor)
    return result[where + len(anchor) :] if where >= 0 else f"\n{result}"


def _take_last_lines(text: str) -> str:
    lines = text.splitlines(keepends=True)
    if len(lines) <= MAX_LINES:
        return text
    return f"[… {len(lines) - MAX_LINES} lines …]\n" + "".join(lines[-MAX_LINES:])
