"""Shows what waits for a decision, one at a time: approvals and dialogs of the open session, and the inbox for all others.

An approval of another session never takes the keyboard, and nothing is shown over a draft or over another screen: a key that was
meant for a text must not decide.
"""

from typing import TYPE_CHECKING

from switchtower.client import errors
from switchtower.tui.screens import approval, dialog
from switchtower.tui.screens.inbox import InboxScreen
from switchtower.tui.state import decisions
from switchtower.tui.state.inbox import InboxItem

if TYPE_CHECKING:
    from switchtower.tui.app import TowerApp

_TOO_LATE = frozenset({"APPROVAL_EXPIRED", "APPROVAL_NOT_FOUND", "NO_ACTIVE_RUN"})


class PendingPrompter:
    def __init__(self, app: "TowerApp", *, quiet: float) -> None:
        self._app = app
        self._quiet = quiet
        self._deferred_dialogs: set[str] = set()

    def ask_next(self) -> None:
        app = self._app
        if not app.is_drawable:
            return
        app.status.refresh_all()
        if self._is_asking() or app.session is None or len(app.screen_stack) > 1:
            return
        if (pending := app.inbox.get_next(app.session.session_id)) is not None:
            # A program in a terminal shows its question itself, where you type.
            if not app.session.is_program and not app.main.composer.text.strip():
                self.ask(pending)
        elif (asked := app.session.get_next_dialog(but=self._deferred_dialogs)) is not None:
            app.run_in_background(self._send_answer(app.session.session_id, dialog.DialogScreen(asked)))

    def _is_asking(self) -> bool:
        """Whether something is asked already. What nobody can decide any more is taken away."""
        app = self._app
        for screen in app.screen_stack:
            if isinstance(screen, approval.ApprovalScreen):
                if app.inbox.get(screen.pending.id) is None:
                    app.show_notice("This approval was decided by another client, or has ended.")
                    screen.dismiss(None)
                return True
            if isinstance(screen, dialog.DialogScreen):
                if app.session is None or screen.dialog.dialog_id not in app.session.asking.dialogs:
                    app.show_notice("it was answered elsewhere, or is not asked any more")
                    screen.dismiss(None)
                return True
        return False

    def ask(self, pending: InboxItem) -> None:
        app = self._app
        screen = approval.ApprovalScreen(pending, now_ms=app.now_ms, waiting=len(app.inbox), quiet=self._quiet)
        app.run_in_background(self._decide(screen))

    async def _decide(self, screen: approval.ApprovalScreen) -> None:
        app, pending = self._app, screen.pending
        if any(isinstance(other, approval.ApprovalScreen) for other in app.screen_stack):
            return
        # Nothing decides while the composer holds a draft: it is taken out and comes back afterwards.
        composer = app.main.composer
        draft = composer.text
        composer.set_text("")
        try:
            decision = await app.push_screen_wait(screen)
        finally:
            if draft and not composer.text:
                composer.set_text(draft)
        if decision is None:
            app.record_approval_closed()
            app.inbox.defer(pending.id)
        else:
            await self._send_decision(pending, decision)
        self.ask_next()

    async def _send_decision(self, pending: InboxItem, decision: decisions.ApprovalChoice) -> None:
        app = self._app
        try:
            await app.feed.decide_approval(pending, decision)
        except errors.RequestFailed as problem:
            if problem.code not in _TOO_LATE:
                raise
            app.show_notice("Another client decided first, or the approval has expired.")
        else:
            if decision.scope == "session":
                app.show_notice(f"Allowed for the rest of this session: {decisions.format_safe_always_rule(pending.approval)}")
        app.inbox.remove(pending.id)
        app.feed.refresh_soon()

    async def _send_answer(self, session_id: str, screen: dialog.DialogScreen) -> None:
        if any(isinstance(other, dialog.DialogScreen) for other in self._app.screen_stack):
            return
        reply = await self._app.push_screen_wait(screen)
        self._deferred_dialogs.add(screen.dialog.dialog_id)
        if reply is not None:
            await self._app.feed.answer_dialog(session_id, screen.dialog.dialog_id, reply)
        self.ask_next()

    async def open_inbox(self) -> None:
        """The inbox. A question that was put aside comes back when nothing else waits."""
        app = self._app
        if any(isinstance(screen, InboxScreen) for screen in app.screen_stack):
            return
        chosen = await app.push_screen_wait(InboxScreen(app.inbox, now_ms=app.now_ms))
        if chosen is not None and (pending := app.inbox.get(chosen)) is not None:
            self.ask(pending)
        elif not app.inbox.pending:
            self._deferred_dialogs.clear()
            self.ask_next()
