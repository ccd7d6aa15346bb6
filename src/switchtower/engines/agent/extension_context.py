"""What an extension's command is given for one run: implements `port.Context` with the run's task and desk."""

from switchtower.core import engine, events
from switchtower.engines.agent import repositories
from switchtower.engines.agent.kit import Kit
from switchtower.extensions import port
from switchtower.extensions.ui import DeskUi

LONGEST_NOTE = 500


class RunContext:
    def __init__(self, task: engine.Task, desk: engine.Desk, kit: Kit, name: str) -> None:
        self._task = task
        self._desk = desk
        self._name = name
        self._over = False
        self.workspace = task.workspace.root
        self.session_id = task.session_id
        self.ui: port.Ui = DeskUi(self._consult, kit.now_ms, timeout=kit.dialog_timeout, headless=task.headless)
        self.last_note = ""

    def close(self) -> None:
        """The command has ended, or should have. What it left running has no say in the run any more."""
        self._over = True

    async def notify(self, text: str) -> None:
        self._check_open()
        self.last_note = str(text).encode(errors="replace").decode()[:LONGEST_NOTE]
        await self._desk.emit(events.PhaseChanged(f"/{self._name}", self.last_note))

    async def repository(self) -> port.Repository | None:
        self._check_open()
        return await repositories.look(self._task)

    async def _consult(self, dialog: events.Dialog) -> engine.DialogAnswer:
        self._check_open()
        return await self._desk.consult(dialog)

    def _check_open(self) -> None:
        if self._over:
            raise port.ExtensionError(f"`/{self._name}` has ended; its context cannot be used any more")
