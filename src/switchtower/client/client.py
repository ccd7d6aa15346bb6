"""The requests of the push protocol as methods, on one connection that keeps no events and reopens after it is lost."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from switchtower import config
from switchtower.client import discovery, errors, frames, workspace
from switchtower.client.connection import REQUEST_TIMEOUT, DaemonConnection
from switchtower.client.discovery import RECONNECT_TIMEOUT, retry_while_away
from switchtower.client.subscription import SessionSubscription
from switchtower.core import ids
from switchtower.protocols.push import extension_messages, listing_messages, messages

_MAX_SEQ = 2**53 - 1
_SLOW_REQUEST_TIMEOUT = 300.0
"""Timeout in seconds of requests for which the daemon may read a whole repository."""

NEEDS_RESTART = "the daemon was started before config.toml changed: run `tower restart`"
notices: set[str] = set()
"""Messages about the daemon for the user of this process; each front end shows them once."""

Answer = TypeVar("Answer", bound=Struct)
MessageDelivery = Literal["steer", "follow_up"]


class DaemonClient:
    def __init__(self, settings: config.Settings, connection: DaemonConnection) -> None:
        self.settings = settings
        self._connection = connection
        self._attach_tokens: dict[str, str] = {}

    @classmethod
    async def connect(cls, settings: config.Settings, *, start: bool = True) -> "DaemonClient":
        """Connects, and with `start` starts a daemon when none is running. Raises `DaemonUnreachable`."""
        opener = discovery.connect_or_start if start else discovery.connect
        client = cls(settings, await opener(settings))
        if discovery.needs_restart(settings):
            notices.add(NEEDS_RESTART)
        return client

    async def __aenter__(self) -> "DaemonClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @property
    def runtime_version(self) -> str:
        greeting = self._connection.greeting
        return greeting.runtimeVersion if greeting else "unknown"

    def supports(self, capability: str) -> bool:
        """Returns whether the daemon supports this group of requests, which are additions to the push document."""
        greeting = self._connection.greeting
        return greeting is not None and capability in greeting.capabilities

    def close(self) -> None:
        self._connection.close()

    async def ping(self) -> messages.Pong:
        return await self._request(messages.Ping(), messages.Pong)

    async def start_session(self, request: messages.StartSession) -> messages.StartSessionAnswer:
        """Starts a session. A lost connection does not repeat the request, because the daemon may have started the session."""
        if (wish := _find_unsupported_feature(request)) and not self.supports("configure"):
            # An older daemon would ignore the field without an error and start a different session than requested.
            raise errors.DaemonTooOld(wish)
        if request.preset is not None and not self.supports("presets"):
            raise errors.DaemonTooOld("presets")
        if request.trust and not self.supports("folder_trust"):
            raise errors.DaemonTooOld("trusting folders")
        if request.engine == "pty" and not self.supports("terminals"):
            raise errors.DaemonTooOld("programs in terminals")
        if request.engine == "flow" and not self.supports("flows"):
            raise errors.DaemonTooOld("flows")
        if request.sandboxProvider == "auto" and not self.supports("sandbox_setting"):
            if self.supports("configure"):
                raise errors.DaemonTooOld("a sandbox that the daemon chooses")
            request = replace(request, sandboxProvider="local")  # push defines no other value
        if request.repo.currentBranch is None and not self.supports("optional_branches"):
            # push's schemas require both branch names, and neither may be empty.
            current, default = workspace.UNKNOWN_BRANCHES
            request = replace(request, repo=replace(request.repo, currentBranch=current, defaultBranch=default))
        within = _SLOW_REQUEST_TIMEOUT if request.worktree else REQUEST_TIMEOUT
        answer = await self._request(request, messages.StartSessionAnswer, repeatable=False, timeout=within)
        self.remember_attach_token(answer.sessionId, answer.attachToken)
        return answer

    def remember_attach_token(self, session_id: str, attach_token: str) -> None:
        """Stores the token for requests that the daemon accepts only with it. A daemon that issues no token requires none."""
        if attach_token:
            self._attach_tokens[session_id] = attach_token

    async def list_sessions(self, limit: int = 20) -> list[messages.ListedSession]:
        return (await self._request(messages.ListSessions(limit), messages.ListSessionsAnswer)).sessions

    async def send_message(
        self,
        session_id: str,
        text: str,
        *,
        acceptance: Sequence[messages.AcceptanceCriterion] = (),
        rules: Sequence[messages.RunRule] = (),
    ) -> str:
        """Starts exactly one run, however often the connection is lost meanwhile, and returns its id. `rules` are policy rules
        that apply to this run alone."""
        if rules and not self.supports("run_rules"):
            raise errors.DaemonTooOld("rules for one run")
        request = messages.SendUserMessage(
            clientMessageId=_make_message_id(),
            text=text,
            sessionId=session_id,
            acceptanceCriteria=list(acceptance),
            rules=list(rules),
        )
        return (await self._request(request, messages.SendAnswer, session_id)).runId

    async def queue_message(self, session_id: str, text: str, delivery: MessageDelivery) -> extension_messages.Queued:
        """Delivers a message to the active run exactly once; without an active run it starts one."""
        request = extension_messages.QueueMessage(_make_message_id(), text, delivery, session_id)
        return await self._request(request, extension_messages.Queued, session_id)

    async def decide_approval(
        self,
        session_id: str,
        run_id: str,
        approval_id: str,
        decision: messages.ApprovalDecision,
        *,
        comment: str | None = None,
        scope: messages.ApprovalScope = "once",
        stop: bool | None = None,
    ) -> None:
        """Raises `RequestFailed` with `APPROVAL_EXPIRED` when another client decided first. With the scope `session`, the rule
        that the approval shows as `details.always` applies from now on. `stop` decides whether a denial ends the run; when it is
        None, an agent continues only after a denial with a comment, and a program in a terminal always continues."""
        if scope == "session" and not self.supports("always_allow"):
            raise errors.DaemonTooOld("decisions for a whole session")
        request = messages.SubmitApproval(
            runId=run_id, approvalId=approval_id, decision=decision, sessionId=session_id, comment=comment, scope=scope, stop=stop
        )
        await self._request(request, messages.Accepted, session_id)

    async def answer_dialog(
        self,
        session_id: str,
        dialog_id: str,
        *,
        value: str | None = None,
        confirmed: bool | None = None,
        responses: Mapping[str, object] | None = None,
        dismissed: bool = False,
    ) -> None:
        """Sends exactly one answer. Raises `RequestFailed` when the dialog is no longer open or requires another kind of
        answer."""
        if not self.supports("dialogs"):
            raise errors.DaemonTooOld("dialogs")
        given = None if responses is None else dict(responses)
        request = extension_messages.AnswerDialog(dialog_id, session_id, value, confirmed, given, dismissed)
        await self._request(request, extension_messages.DialogAnswered, session_id)

    async def list_open_dialogs(self, session_id: str) -> list[frames.PushDialog]:
        """Returns the dialogs that are open in a session, found by reading its events. An older daemon has no dialogs."""
        if not self.supports("dialogs") or (await self.get_session(session_id)).activeRunId is None:
            return []
        return [dialog for _, dialog in (await self.subscribe(session_id).find_open_dialogs()).values()]

    async def cancel_run(
        self, session_id: str, *, run_id: str | None = None, reason: str = "user_cancelled", force: bool = False
    ) -> None:
        """Cancels a run. With `force`, the daemon kills a program in a terminal instead of asking it to exit."""
        if force and not self.supports("terminals"):
            raise errors.DaemonTooOld("killing programs")
        await self._request(messages.CancelRun(session_id, run_id, reason, force), messages.Accepted, session_id)

    async def type_text(self, session_id: str, text: str) -> None:
        """Types a text into a session's program exactly once, however often the connection is lost meanwhile."""
        request = extension_messages.TerminalInput(
            text, session_id, ids.format_id("in", time.time_ns() // 1_000_000, secrets.randbits(80))
        )
        await self._request(request, extension_messages.Typed, session_id)

    async def type_keys(self, session_id: str, keys: str) -> None:
        """Types a user's keystrokes, of which the daemon stores only the count. The client waits for a daemon that is restarting,
        but does not repeat the request after a lost connection: no key may be pressed twice."""
        await retry_while_away(self._ensure_connected, timeout=RECONNECT_TIMEOUT)
        await self._request(
            extension_messages.TerminalInput(keys, session_id), extension_messages.Typed, session_id, repeatable=False
        )

    async def resize_terminal(self, session_id: str, cols: int, rows: int) -> None:
        await self._request(extension_messages.TerminalResize(cols, rows, session_id), extension_messages.Typed, session_id)

    async def list_terminals(self, limit: int = 20) -> list[extension_messages.TerminalListing]:
        """Returns the terminal programs among the most recently used sessions. An older daemon has none."""
        if not self.supports("terminals"):
            return []
        return (await self._request(extension_messages.ListTerminals(limit), extension_messages.Terminals)).terminals

    async def list_cards(self, limit: int = 100, *, waiting: bool = False) -> list[listing_messages.Card]:
        """Lists sessions, most recently used first; with `waiting`, only those that wait for a decision."""
        self._require_capability("cards", "lists with titles")
        return (await self._request(listing_messages.ListCards(limit, waiting), listing_messages.Cards)).cards

    async def list_approvals(self, limit: int = 100) -> list[listing_messages.PendingApproval]:
        """Lists all pending approvals of all sessions and hosts."""
        self._require_capability("inbox", "an inbox")
        return (await self._request(listing_messages.ListApprovals(limit), listing_messages.Approvals)).approvals

    async def search(self, text: str, limit: int = 50, *, session_id: str | None = None) -> list[listing_messages.Hit]:
        self._require_capability("search", "searching")
        request = listing_messages.SearchSessions(text, limit, session_id)
        return (await self._request(request, listing_messages.Hits, timeout=_SLOW_REQUEST_TIMEOUT)).hits

    async def fork_session(self, session_id: str, *, before_seq: int | None = None) -> listing_messages.Forked:
        """Copies the conversation into a new session. A lost connection does not repeat the request, because the daemon may have
        created the fork."""
        self._require_capability("fork", "forks")
        request = listing_messages.ForkSession(session_id, before_seq)
        forked = await self._request(request, listing_messages.Forked, session_id, repeatable=False)
        self.remember_attach_token(forked.sessionId, forked.attachToken)
        return forked

    async def delete_session(self, session_id: str) -> None:
        self._require_capability("delete", "deleting sessions")
        await self._request(listing_messages.DeleteSession(session_id), listing_messages.Deleted, session_id, repeatable=False)

    async def list_nodes(self) -> list[listing_messages.Node]:
        """Lists the nodes that share the daemon's store, including its own; empty for a single node and for an older daemon."""
        if not self.supports("nodes"):
            return []
        return (await self._request(listing_messages.ListNodes(), listing_messages.Nodes)).nodes

    async def drain_node(self, wait_seconds: float) -> listing_messages.NodeDrained:
        """Drains the node. The node disconnects its clients meanwhile, this one too; the repeated request returns the result."""
        self._require_capability("nodes", "several nodes")
        request = listing_messages.DrainNode(wait_seconds)
        return await self._request(request, listing_messages.NodeDrained, timeout=wait_seconds + _SLOW_REQUEST_TIMEOUT)

    async def list_trusted_folders(self) -> list[listing_messages.TrustedFolder]:
        self._require_capability("folder_trust", "trusting folders")
        return (await self._request(listing_messages.ListTrustedFolders(), listing_messages.TrustedFolders)).folders

    async def trust_folder(self, path: str) -> str:
        self._require_capability("folder_trust", "trusting folders")
        return (await self._request(listing_messages.TrustFolder(path), listing_messages.FolderTrusted)).path

    async def untrust_folder(self, path: str) -> bool:
        self._require_capability("folder_trust", "trusting folders")
        return (await self._request(listing_messages.ForgetFolder(path), listing_messages.FolderForgotten)).wasTrusted

    def _require_capability(self, capability: str, what: str) -> None:
        if not self.supports(capability):
            raise errors.DaemonTooOld(what)

    async def get_flow_report(self, session_id: str) -> extension_messages.FlowReport:
        """Returns the state of a flow so far, in REP's terms."""
        return await self._request(
            extension_messages.GetFlow(session_id), extension_messages.FlowReport, session_id, timeout=_SLOW_REQUEST_TIMEOUT
        )

    async def get_session(self, session_id: str) -> extension_messages.SessionInfo:
        return await self._request(extension_messages.GetSession(session_id), extension_messages.SessionInfo, session_id)

    async def configure_session(
        self,
        session_id: str,
        *,
        provider: str | None = None,
        model: str | None = None,
        policy: messages.PolicyProfile | None = None,
        thinking: messages.ThinkingLevel | None = None,
        title: str | None = None,
    ) -> None:
        """Changes the session's settings from its next run on; None leaves a setting unchanged."""
        request = extension_messages.ConfigureSession(session_id, provider, model, policy, thinking, title)
        await self._request(request, extension_messages.Configured, session_id)

    async def compact_session(self, session_id: str, instructions: str = "") -> str:
        """Starts a run that summarises the conversation, and returns its id. A lost connection does not repeat the request."""
        request = extension_messages.CompactSession(session_id, instructions)
        return (await self._request(request, extension_messages.ChoreStarted, session_id, repeatable=False)).runId

    async def undo_run(self, session_id: str, *, redo: bool = False, force: bool = False) -> str:
        """Starts a run that reverts the changes of the last run, and returns its id. A lost connection does not repeat the
        request: the second one would revert another run."""
        request = extension_messages.UndoRun(session_id, redo, force)
        return (await self._request(request, extension_messages.ChoreStarted, session_id, repeatable=False)).runId

    async def get_diff(self, session_id: str, *, run_id: str | None = None) -> str:
        request = extension_messages.DiffSession(session_id, run_id)
        return (await self._request(request, extension_messages.Diff, session_id, timeout=_SLOW_REQUEST_TIMEOUT)).diff

    async def list_models(self) -> list[extension_messages.ModelListing]:
        return (await self._request(extension_messages.ListModels(), extension_messages.Models)).models

    async def list_server_models(self, provider: str) -> list[str] | None:
        """Returns the models that a provider's server lists; None when it has no list."""
        return (await self._request(extension_messages.ListModels(provider), extension_messages.Models)).serverModels or None

    async def list_templates(self, root: str) -> list[extension_messages.Template]:
        """Lists the skills and prompts of a folder, those of the user, and those of extensions."""
        return (await self._request(extension_messages.ListTemplates(root), extension_messages.Templates)).templates

    async def list_presets(self, root: str) -> list[extension_messages.Preset]:
        """Lists the presets of a folder and those of the user, including presets that cannot be used."""
        return (await self._request(extension_messages.ListPresets(root), extension_messages.Presets)).presets

    def subscribe(
        self,
        session_id: str,
        *,
        last_seen_seq: int = 0,
        reconnect_timeout: float = RECONNECT_TIMEOUT,
        on_lost: Callable[[], None] | None = None,
    ) -> SessionSubscription:
        return SessionSubscription(
            self.settings,
            session_id,
            last_seen_seq=last_seen_seq,
            attach_token=self._attach_tokens.get(session_id),
            reconnect_timeout=reconnect_timeout,
            on_lost=on_lost,
        )

    async def _request(
        self,
        request: frames.OutgoingRequest,
        answer_type: type[Answer],
        session_id: str | None = None,
        *,
        repeatable: bool = True,
        timeout: float = REQUEST_TIMEOUT,
    ) -> Answer:
        async def attempt() -> Answer:
            await self._ensure_connected()
            try:
                return await self._connection.request(request, answer_type, session_id=session_id, timeout=timeout)
            except errors.RequestFailed as problem:
                if problem.code != "ATTACH_FORBIDDEN" or session_id not in self._attach_tokens:
                    raise
            await self._show_token(session_id)
            return await self._connection.request(request, answer_type, session_id=session_id, timeout=timeout)

        return await retry_while_away(attempt, timeout=RECONNECT_TIMEOUT if repeatable else 0)

    async def _ensure_connected(self) -> None:
        if not self._connection.is_open:
            self._connection = await discovery.connect(self.settings)

    async def _show_token(self, session_id: str) -> None:
        """Attaches with the token: where the daemon requires one, a connection may command only sessions it is attached to. The
        cursor is beyond the head, so the daemon replays nothing."""
        attach = messages.AttachSession(_MAX_SEQ, session_id, self._attach_tokens[session_id])
        await self._connection.request(attach, messages.AttachAnswer, session_id=session_id)


def _make_message_id() -> str:
    return ids.format_id("msg", time.time_ns() // 1_000_000, secrets.randbits(80))


def _find_unsupported_feature(request: messages.StartSession) -> str | None:
    """Names the first requested feature that only a daemon with our additions to push has."""
    wishes = {
        "policies": request.policy,
        "levels of thinking": request.thinking,
        "limits": request.limits,
        "worktrees": request.worktree,
        "the sandbox `bubblewrap`": request.sandboxProvider == "bubblewrap",
        "the provider `auto`": request.provider == "auto",
    }
    return next((name for name, wish in wishes.items() if wish), None)
