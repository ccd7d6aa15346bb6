"""Shows what waits for a decision, one at a time: approvals and dialogs of the open session, and the inbox for all others.

An approval of another session never takes the keyboard, and nothing is shown over a draft or over another screen: a key that was
meant for a text must not decide.
"""

from typing import TYPE_CHECKING

from switchtower.client import errors
from switchtower.tui.screens import approval, dialog
from switchtower.tui.screens.inbox import InboxScreen
from switchtower.tui.state import decisions
from switchtower.tui.state.inbox import Pending

if TYPE_CHECKING:
    from switchtower.tui.app import TowerApp

_TOO_LATE = frozenset({"APPROVAL_EXPIRED", "APPROVAL_NOT_FOUND", "NO_ACTIVE_RUN"})


class Deciding:
    def __init__(self, app: "TowerApp", *, quiet: float) -> None:
        self._app = app
        self._quiet = quiet
        self._dialogs_aside: set[str] = set()

    def ask_next(self) -> None:
        app = self._app
        if not app.is_there:
            return
        app.drawing.all()
        if self._is_asking() or app.open is None or len(app.screen_stack) > 1:
            return
        if (pending := app.inbox.next_to_show(app.open.session_id)) is not None:
            # A program in a terminal shows its question itself, where you type.
            if not app.open.is_program and not app.main.composer.text.strip():
                self.ask(pending)
        elif (asked := app.open.next_dialog(but=self._dialogs_aside)) is not None:
            app.do(self._answer(app.open.session_id, dialog.DialogScreen(asked)))

    def _is_asking(self) -> bool:
        """Whether something is asked already. What nobody can decide any more is taken away."""
        app = self._app
        for screen in app.screen_stack:
            if isinstance(screen, approval.ApprovalScreen):
                if app.inbox.get(screen.pending.id) is None:
                    app.say("This approval was decided by another client, or has ended.")
                    screen.dismiss(None)
                return True
            if isinstance(screen, dialog.DialogScreen):
                if app.open is None or screen.dialog.dialog_id not in app.open.asking.dialogs:
                    app.say("it was answered elsewhere, or is not asked any more")
                    screen.dismiss(None)
                return True
        return False

    def ask(self, pending: Pending) -> None:
        app = self._app
        screen = approval.ApprovalScreen(pending, now_ms=app.now_ms, waiting=len(app.inbox), quiet=self._quiet)
        app.do(self._decide(screen))

    async def _decide(self, screen: approval.ApprovalScreen) -> None:
        app, pending = self._app, screen.pending
        if any(isinstance(other, approval.ApprovalScreen) for other in app.screen_stack):
            return
        # Nothing decides while the composer holds a draft: it is taken out and comes back afterwards.
        composer = app.main.composer
        draft = composer.text
        composer.put("")
        try:
            decision = await app.push_screen_wait(screen)
        finally:
            if draft and not composer.text:
                composer.put(draft)
        if decision is None:
            app.note_approval_left()
            app.inbox.put_aside(pending.id)
        else:
            await self._tell(pending, decision)
        self.ask_next()

    async def _tell(self, pending: Pending, decision: decisions.Decision) -> None:
        app = self._app
        try:
            await app.feed.decide(pending, decision)
        except errors.RequestFailed as problem:
            if problem.code not in _TOO_LATE:
                raise
            app.say("Another client decided first, or the approval has expired.")
        else:
            if decision.scope == "session":
                app.say(f"Allowed for the rest of this session: {decisions.always_rule(pending.approval)}")
        app.inbox.is_over(pending.id)
        app.feed.look()

    async def _answer(self, session_id: str, screen: dialog.DialogScreen) -> None:
        if any(isinstance(other, dialog.DialogScreen) for other in self._app.screen_stack):
            return
        reply = await self._app.push_screen_wait(screen)
        self._dialogs_aside.add(screen.dialog.dialog_id)
        if reply is not None:
            await self._app.feed.answer(session_id, screen.dialog.dialog_id, reply)
        self.ask_next()

    async def choose(self) -> None:
        """The inbox. A question that was put aside comes back when nothing else waits."""
        app = self._app
        if any(isinstance(screen, InboxScreen) for screen in app.screen_stack):
            return
        chosen = await app.push_screen_wait(InboxScreen(app.inbox, now_ms=app.now_ms))
        if chosen is not None and (pending := app.inbox.get(chosen)) is not None:
            self.ask(pending)
        elif not app.inbox.pending:
            self._dialogs_aside.clear()
            self.ask_next()
