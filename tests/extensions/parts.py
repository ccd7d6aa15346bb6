"""Plugins as people install them: a module and the metadata that names it, in a folder where Python looks for modules."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from uuid import uuid4

from switchtower.core import events
from switchtower.core.ports import engine

Install = Callable[..., str]
"""`install(source, name="greet", attribute="EXTENSION")` gives back the entry point's value."""

GREET = """
    from switchtower.extensions import port

    async def greet(ctx, arguments):
        return f"say: hello {arguments}"

    EXTENSION = port.Extension("greet", "Greets", (port.ExtensionCommand("greet", "Greets somebody", greet),))
"""


def install_into(folder: Path, source: str, *, name: str = "greet", attribute: str = "EXTENSION") -> str:
    module = f"plugin_{uuid4().hex}"
    (folder / f"{module}.py").write_text(dedent(source))
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[switchtower.extensions]\n{name} = {module}:{attribute}\n")
    return f"{module}:{attribute}"


class DialogResponder:
    """Answers dialogs from a list, in order, and keeps what was asked."""

    def __init__(self, *answers: engine.DialogAnswer | dict[str, object]) -> None:
        self.asked: list[events.Dialog] = []
        self._answers = list(answers)

    async def consult(self, dialog: events.Dialog) -> engine.DialogAnswer:
        self.asked.append(dialog)
        answer = self._answers.pop(0)
        return answer if isinstance(answer, engine.DialogAnswer) else engine.DialogAnswer(answer)
