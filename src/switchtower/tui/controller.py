"""The parts of the app that connect the feed with the screen: they route updates, refresh status lines, ask for decisions, open
sessions and send messages.

An approval of another session never takes the keyboard, and nothing opens over a draft or over another screen: a key that was
meant for a text must not decide an approval.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from switchtower.client import errors, workspace
from switchtower.client.frames import PushEvent
from switchtower.presentation import approval_text, safe_text
from switchtower.protocols.push import extension_messages
from switchtower.tui import preferences
from switchtower.tui.commands import SlashCommandRunner
from switchtower.tui.feed import Link
from switchtower.tui.screens import approvals, dialogs
from switchtower.tui.screens.approvals import InboxScreen
from switchtower.tui.state import input, session, session_rows
from switchtower.tui.state.session import SessionDraft, SessionModel
from switchtower.tui.state.session_rows import InboxItem
from switchtower.tui.widgets.lines import StatusLine, TopLine

if TYPE_CHECKING:
    from switchtower.tui.app import TowerApp


class ClientWarnings(logging.Handler):
    """Shows the client's warnings, such as a daemon of another version, which a command would print on stderr."""

    def __init__(self, app: "TowerApp") -> None:
        super().__init__(logging.WARNING)
        self._app = app

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage().removeprefix("tower: ")
        self._app.notify(safe_text.escape_prose(message), severity="warning", timeout=10, markup=False)


class FeedHandler:
    def __init__(self, app: "TowerApp") -> None:
        self._app = app
        self._reason = ""

    def on_link_changed(self, link: Link, reason: str) -> None:
        app = self._app
        if not app.is_drawable:
            return
        if reason and reason != self._reason:
            app.notify(safe_text.escape_prose(reason), severity="warning", timeout=6, markup=False)
        self._reason = reason
        if link == "connected":
            app.opener.load_completions()
        app.status.refresh_all()

    def on_sessions_listed(self, rows: list[session_rows.SessionListRow]) -> None:
        self._app.rows = rows
        self._app.status.refresh_sessions()
        self._app.status.refresh_all()

    def on_approvals_listed(self, pending: list[InboxItem], sessions: set[str] | None) -> None:
        # For the open session, its events are more recent than any list.
        open_id = self._app.session.session_id if self._app.session is not None else None
        self._app.inbox.apply_listing(pending, sessions=sessions, but=open_id)
        self._app.prompter.ask_next()

    def on_session_info(self, about: extension_messages.SessionInfo) -> None:
        app = self._app
        if app.is_drawable and app.session is not None and app.session.session_id == about.sessionId:
            app.session.update_info(about)
            app.status.refresh_all()

    def on_session_refused(self, session_id: str, problem: errors.ClientError) -> None:
        if self._app.is_drawable:
            self._app.show_error(problem)

    def on_events(self, session_id: str, events: list[PushEvent]) -> None:
        app = self._app
        if not app.is_drawable or app.session is None or app.session.session_id != session_id:
            return
        app.session.extend(events)
        name = app.get_session_name(session_id)
        for event in events:
            app.inbox.on_event(event, session_name=name)
        if app.session.is_program:
            self._update_program(app.session, events)
        else:
            app.main.transcript.refresh_end()
        app.prompter.ask_next()

    def _update_program(self, conversation: SessionModel, events: list[PushEvent]) -> None:
        terminal = self._app.main.terminal
        if (size := conversation.find_resize(events)) is not None:
            terminal.set_size(*size)
        if text := conversation.collect_output(events):
            terminal.feed(text)
        if not conversation.is_running:
            terminal.mark_ended()


class StatusRefresher:
    def __init__(self, app: "TowerApp") -> None:
        self._app = app
        self._frame = 0

    def refresh_all(self) -> None:
        if self._app.is_drawable:
            self._refresh_top_line()
            self._refresh_placeholder()
            self._refresh_status_line()

    def refresh_sessions(self) -> None:
        app = self._app
        if app.is_drawable:
            open_id = app.session.session_id if app.session is not None else None
            app.main.sessions.show(app.rows, now_ms=app.now_ms(), open_id=open_id)

    def tick(self) -> None:
        """Advances the animation of the active run, unless another screen covers it."""
        app = self._app
        if app.is_drawable and app.session is not None and app.session.is_running and len(app.screen_stack) == 1:
            self._frame += 1
            if not app.session.is_program:
                app.main.transcript.tick()
            self._refresh_status_line()

    def _refresh_top_line(self) -> None:
        app = self._app
        about = app.session.info if app.session is not None else None
        name = "new session" if about is None else " ".join(about.title.split()) or f"…{about.sessionId[-6:]}"
        branch = about.branch if about is not None else None
        app.main.query_one(TopLine).show(
            name=name,
            where=app.root + (f" ({branch})" if branch else ""),
            link=app.feed.link,
            reason="Ctrl-R starts it" if app.feed.link == "lost" else "",
            waiting=len(app.inbox),
        )

    def _refresh_placeholder(self) -> None:
        app = self._app
        if app.session is None:
            app.main.composer.set_placeholder("what shall we do?")
        elif app.session.is_running:
            app.main.composer.set_placeholder("steer it: what you write reaches it at its next step")
        else:
            app.main.composer.set_placeholder("go on")

    def _refresh_status_line(self) -> None:
        app = self._app
        line = app.main.query_one(StatusLine)
        conversation = app.session
        if conversation is None:
            wish = app.draft
            policy = wish.policy or ("" if wish.preset else app.settings.policy)
            what = session.make_meter(None, provider=wish.preset or wish.provider, model=wish.model, policy=policy)
            line.show(what, running_seconds=None, note="", queued=0, beat=0)
            return
        since = conversation.running_since_ms
        seconds = max(0.0, (app.now_ms() - since) / 1000) if since is not None and conversation.is_running else None
        if conversation.is_program:
            note = "Ctrl-] leaves it running" if conversation.is_running else _describe_ending(conversation)
            seconds = None
        elif not app.main.transcript.is_at_end:
            note = "more below, Ctrl-End"
        else:
            note = conversation.describe_activity() if conversation.is_running else ""
        line.show(
            session.make_meter(conversation.info),
            running_seconds=seconds,
            note=note,
            queued=len(conversation.info.queue) if conversation.is_running else 0,
            beat=self._frame,
        )


def _describe_ending(conversation: SessionModel) -> str:
    terminal = conversation.info.terminal
    code = terminal.exitCode if terminal is not None else None
    return "it has ended" + (f" with exit code {code}" if code is not None else "") + "; Esc goes back"


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
            # A program in a terminal shows its question itself, where the user types.
            if not app.session.is_program and not app.main.composer.text.strip():
                self.ask(pending)
        elif (asked := app.session.get_next_dialog(but=self._deferred_dialogs)) is not None:
            app.run_in_background(self._send_answer(app.session.session_id, dialogs.DialogScreen(asked)))

    def _is_asking(self) -> bool:
        """Returns whether a question is already shown. It closes an approval or dialog that can no longer be answered."""
        app = self._app
        for screen in app.screen_stack:
            if isinstance(screen, approvals.ApprovalScreen):
                if app.inbox.get(screen.pending.id) is None:
                    app.show_notice("This approval was decided by another client, or has ended.")
                    screen.dismiss(None)
                return True
            if isinstance(screen, dialogs.DialogScreen):
                if app.session is None or screen.dialog.dialog_id not in app.session.asking.dialogs:
                    app.show_notice("it was answered elsewhere, or is not asked any more")
                    screen.dismiss(None)
                return True
        return False

    def ask(self, pending: InboxItem) -> None:
        app = self._app
        screen = approvals.ApprovalScreen(pending, now_ms=app.now_ms, waiting=len(app.inbox), quiet=self._quiet)
        app.run_in_background(self._decide(screen))

    async def _decide(self, screen: approvals.ApprovalScreen) -> None:
        app, pending = self._app, screen.pending
        if any(isinstance(other, approvals.ApprovalScreen) for other in app.screen_stack):
            return
        # The composer must not hold a draft while an approval is open: the draft is removed and restored afterwards.
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

    async def _send_decision(self, pending: InboxItem, decision: approval_text.ApprovalChoice) -> None:
        app = self._app
        try:
            await app.feed.decide_approval(pending, decision)
        except errors.RequestFailed as problem:
            if problem.code not in _TOO_LATE:
                raise
            app.show_notice("Another client decided first, or the approval has expired.")
        else:
            if decision.scope == "session":
                app.show_notice(
                    f"Allowed for the rest of this session: {approval_text.format_safe_always_rule(pending.approval)}"
                )
        app.inbox.remove(pending.id)
        app.feed.refresh_soon()

    async def _send_answer(self, session_id: str, screen: dialogs.DialogScreen) -> None:
        if any(isinstance(other, dialogs.DialogScreen) for other in self._app.screen_stack):
            return
        reply = await self._app.push_screen_wait(screen)
        self._deferred_dialogs.add(screen.dialog.dialog_id)
        if reply is not None:
            await self._app.feed.answer_dialog(session_id, screen.dialog.dialog_id, reply)
        self.ask_next()

    async def open_inbox(self) -> None:
        """Opens the inbox. A deferred question is asked again when nothing else is pending."""
        app = self._app
        if any(isinstance(screen, InboxScreen) for screen in app.screen_stack):
            return
        chosen = await app.push_screen_wait(InboxScreen(app.inbox, now_ms=app.now_ms))
        if chosen is not None and (pending := app.inbox.get(chosen)) is not None:
            self.ask(pending)
        elif not app.inbox.pending:
            self._deferred_dialogs.clear()
            self.ask_next()


class SessionOpener:
    def __init__(self, app: "TowerApp") -> None:
        self._app = app
        self._generation = 0

    async def open_session(self, session_id: str) -> None:
        app = self._app
        self._generation += 1
        turn = self._generation
        about = await app.feed.get_session(session_id)
        if turn != self._generation:
            return  # the user has opened another session meanwhile
        app.session = conversation = SessionModel(about)
        app.feed.follow_session(about)
        screen = app.main
        screen.set_home_layout(False)
        if conversation.is_program and about.terminal is not None:
            screen.terminal.start_program(about.terminal.cols, about.terminal.rows, takes_keys=conversation.is_running)
        else:
            screen.transcript.show(conversation.transcript, has_older=about.lastSeq > 0)
        screen.show_terminal(conversation.is_program)
        self._on_session_changed()
        if conversation.is_running and not conversation.is_program:
            # These dialogs were opened before the events that the reader has loaded.
            for one in await app.feed.list_open_dialogs(session_id):
                conversation.asking.dialogs.setdefault(one.dialog_id, (0, one))
            app.prompter.ask_next()

    def start_new(self, root: str | None = None) -> None:
        """Shows an empty draft. A session starts only with the first message."""
        app = self._app
        self._generation += 1
        app.feed.close_session()
        was_open, app.session = app.session is not None, None
        if root is not None or was_open:
            app.draft = SessionDraft.from_settings(app.settings, root or app.draft.root)
        screen = app.main
        screen.set_home_layout(True)
        screen.show_terminal(False)
        screen.transcript.show(SessionModel.make_empty_transcript(), has_older=False)
        screen.show_greeting(app.draft)
        self._on_session_changed()

    def _on_session_changed(self) -> None:
        self.load_completions()
        self._app.status.refresh_all()
        self._app.status.refresh_sessions()

    def load_completions(self) -> None:
        """Loads the files, skills and models that can be completed in this folder."""

        async def quietly() -> None:
            try:
                await self._load_completions_of(self._app.root)
            except errors.ClientError:
                return  # completion is a convenience

        # The worker gets a function, so that no coroutine object exists if it is cancelled before it starts.
        work: Any = quietly
        self._app.run_worker(work, group="place", exclusive=True)

    async def _load_completions_of(self, root: str) -> None:
        app = self._app
        files = await asyncio.to_thread(workspace.list_files, root)
        if root == app.root:
            app.main.composer.files = files
        if app.feed.link == "connected":
            templates = await app.feed.list_templates(root)
            app.models = app.models or await app.feed.list_models()
            if root == app.root:
                app.main.composer.templates = [input.SlashOption(one.name, one.description) for one in templates]


class MessageSender:
    def __init__(self, app: "TowerApp") -> None:
        self._app = app
        self.commands = SlashCommandRunner(app)
        self._send_lock = asyncio.Lock()
        """Ensures that messages sent while a session is starting go to that session."""

    def submit(self, text: str) -> None:
        app = self._app
        preferences.save_history(app.settings, app.history.entries)
        match input.parse_slash(text, [option.text for option in app.main.composer.templates]):
            case None:
                app.run_in_background(self._send(text.removeprefix("/") if text.startswith("//") else text))
            case input.SlashInput() as typed:
                self.commands.run(typed)
            case input.UnknownSlashCommand(name, suggestion):
                meant = f"did you mean `/{suggestion}`?" if suggestion else "see `/help`"
                app.notify(f"`/{safe_text.to_safe_line(name)}` is no command; hint: {meant}", severity="warning", markup=False)
                app.main.composer.set_text(text)

    async def _send(self, text: str) -> None:
        app = self._app
        try:
            async with self._send_lock:
                if app.session is None:
                    session_id = await app.feed.start_session(
                        app.draft.build_request(workspace.describe_workspace(app.draft.root))
                    )
                    await app.opener.open_session(session_id)
                    await app.feed.send_message(session_id, text)
                elif app.session.is_running or not await self._start_run(app.session.session_id, text):
                    await app.feed.queue_message(app.session.session_id, text, "steer")
                    app.show_notice("it hears this at its next step")
        except errors.ClientError:
            if not app.main.composer.text:
                app.main.composer.set_text(text)  # the user's text is never lost
            raise

    async def _start_run(self, session_id: str, text: str) -> bool:
        """Returns False when another client has started a run first; that run can still be steered."""
        try:
            await self._app.feed.send_message(session_id, text)
        except errors.RequestFailed as problem:
            if problem.code != "RUN_IN_PROGRESS":
                raise
            return False
        return True
