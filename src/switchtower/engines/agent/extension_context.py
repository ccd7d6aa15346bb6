"""What an extension's command is given for one run: implements `port.Context` with the run's task and desk."""

from switchtower.core import engine, events
from switchtower.engines.agent import repositories
from switchtower.engines.agent.kit import AgentServices
from switchtower.extensions import port
from switchtower.extensions.ui import RunContextUi

LONGEST_NOTE = 500


class RunExtensionContext:
    def __init__(self, task: engine.Task, context: engine.RunContext, services: AgentServices, name: str) -> None:
        self._task = task
        self._context = context
        self._name = name
        self._is_closed = False
        self.workspace = task.workspace.root
        self.session_id = task.session_id
        self.ui: port.Ui = RunContextUi(
            self._open_dialog, services.now_ms, timeout=services.dialog_timeout, headless=task.headless
        )
        self.last_note = ""

    def close(self) -> None:
        """The command has ended, or should have. What it left running has no say in the run any more."""
        self._is_closed = True

    async def notify(self, text: str) -> None:
        self._check_open()
        self.last_note = str(text).encode(errors="replace").decode()[:LONGEST_NOTE]
        await self._context.emit(events.PhaseChanged(f"/{self._name}", self.last_note))

    async def make_repository(self) -> port.RepositoryInfo | None:
        self._check_open()
        return await repositories.read_repository(self._task)

    async def _open_dialog(self, dialog: events.Dialog) -> engine.DialogAnswer:
        self._check_open()
        return await self._context.open_dialog(dialog)

    def _check_open(self) -> None:
        if self._is_closed:
            raise port.ExtensionError(f"`/{self._name}` has ended; its context cannot be used any more")
