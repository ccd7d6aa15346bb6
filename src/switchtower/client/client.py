"""The requests of the protocol as methods, on one connection that keeps no events and is opened again when it is lost."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from switchtower import config
from switchtower.client import dialogs, discovery, errors, frames, workspace
from switchtower.client.connection import REQUEST_TIMEOUT, DaemonConnection
from switchtower.client.discovery import RECONNECT_TIMEOUT, retry_while_away
from switchtower.client.subscription import SessionSubscription
from switchtower.core import ids
from switchtower.protocols.push import extension_messages, listing_messages, messages

_MAX_SEQ = 2**53 - 1
_SLOW_REQUEST_TIMEOUT = 300.0
"""Seconds for what may read a whole repository."""

NEEDS_RESTART = "the daemon was started before config.toml changed: run `tower restart`"
notices: set[str] = set()
"""What the user of this process should know about the daemon it talked to; a front end shows it once."""

Answer = TypeVar("Answer", bound=Struct)
MessageDelivery = Literal["steer", "follow_up"]


class DaemonClient:
    def __init__(self, settings: config.Settings, connection: DaemonConnection) -> None:
        self.settings = settings
        self._connection = connection
        self._attach_tokens: dict[str, str] = {}

    @classmethod
    async def connect(cls, settings: config.Settings, *, start: bool = True) -> "DaemonClient":
        """With `start`, a daemon is started when none runs. Raises `DaemonUnreachable`."""
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
        """Whether the daemon understands this group of requests beyond the document."""
        greeting = self._connection.greeting
        return greeting is not None and capability in greeting.capabilities

    def close(self) -> None:
        self._connection.close()

    async def ping(self) -> messages.Pong:
        return await self._request(messages.Ping(), messages.Pong)

    async def start_session(self, request: messages.StartSession) -> messages.StartSessionAnswer:
        """Not asked again when the connection is lost: it may have started one."""
        if (wish := _find_unsupported_feature(request)) and not self.supports("configure"):
            # It would be passed over in silence, and the session be another than was asked for.
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
            request = replace(request, sandboxProvider="local")  # the document has no other
        if request.repo.currentBranch is None and not self.supports("optional_branches"):
            # The document's schemas want a name, and no empty one.
            current, default = workspace.UNKNOWN_BRANCHES
            request = replace(request, repo=replace(request.repo, currentBranch=current, defaultBranch=default))
        within = _SLOW_REQUEST_TIMEOUT if request.worktree else REQUEST_TIMEOUT
        answer = await self._request(request, messages.StartSessionAnswer, repeatable=False, timeout=within)
        self.remember_attach_token(answer.sessionId, answer.attachToken)
        return answer

    def remember_attach_token(self, session_id: str, attach_token: str) -> None:
        """The token to show where the daemon asks for it. A daemon that gives none asks for none."""
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
        """Starts a run, once, however often the connection is lost meanwhile; returns its id. `rules` are of the policy, for
        this run alone."""
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
        """Hands a message to a run that is under way, once; without a run it starts one."""
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
        """Raises `RequestFailed` with `APPROVAL_EXPIRED` when somebody else was first. With the scope `session`, the rule
        that the approval shows as `details.always` holds from now on. With `stop`, a denial ends the run or lets it continue
        as it says; without it, an agent continues after a comment, and a program in a terminal always."""
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
        """Gives exactly one answer. Raises `RequestFailed` when the dialog is not open any more, or wants another answer."""
        if not self.supports("dialogs"):
            raise errors.DaemonTooOld("dialogs")
        given = None if responses is None else dict(responses)
        request = extension_messages.AnswerDialog(dialog_id, session_id, value, confirmed, given, dismissed)
        await self._request(request, extension_messages.DialogAnswered, session_id)

    async def list_open_dialogs(self, session_id: str) -> list[dialogs.PushDialog]:
        """What a session's people are asked at this moment, found by reading its events. An older daemon asks nothing."""
        if not self.supports("dialogs") or (await self.get_session(session_id)).activeRunId is None:
            return []
        return [dialog for _, dialog in (await self.subscribe(session_id).find_open_dialogs()).values()]

    async def cancel_run(
        self, session_id: str, *, run_id: str | None = None, reason: str = "user_cancelled", force: bool = False
    ) -> None:
        """With `force` a program in a terminal is killed, and not asked to end."""
        if force and not self.supports("terminals"):
            raise errors.DaemonTooOld("killing programs")
        await self._request(messages.CancelRun(session_id, run_id, reason, force), messages.Accepted, session_id)

    async def type_text(self, session_id: str, text: str) -> None:
        """Types a text into a session's program, once, however often the connection is lost meanwhile."""
        request = extension_messages.TerminalInput(
            text, session_id, ids.format_id("in", time.time_ns() // 1_000_000, secrets.randbits(80))
        )
        await self._request(request, extension_messages.Typed, session_id)

    async def type_keys(self, session_id: str, keys: str) -> None:
        """As a person types, of which only the number of keys is kept. Waits for a daemon that is away, and is not asked again
        when the connection is lost on the way: nobody's key is to be pressed twice."""
        await retry_while_away(self._ensure_connected, timeout=RECONNECT_TIMEOUT)
        await self._request(
            extension_messages.TerminalInput(keys, session_id), extension_messages.Typed, session_id, repeatable=False
        )

    async def resize_terminal(self, session_id: str, cols: int, rows: int) -> None:
        await self._request(extension_messages.TerminalResize(cols, rows, session_id), extension_messages.Typed, session_id)

    async def list_terminals(self, limit: int = 20) -> list[extension_messages.TerminalListing]:
        """Of the sessions that were used last, those that are programs. An older daemon has none."""
        if not self.supports("terminals"):
            return []
        return (await self._request(extension_messages.ListTerminals(limit), extension_messages.Terminals)).terminals

    async def list_cards(self, limit: int = 100, *, waiting: bool = False) -> list[listing_messages.Card]:
        """Sessions, the one used last first; or only those that wait for a decision."""
        self._require_capability("cards", "lists with titles")
        return (await self._request(listing_messages.ListCards(limit, waiting), listing_messages.Cards)).cards

    async def list_approvals(self, limit: int = 100) -> list[listing_messages.PendingApproval]:
        """Everything that waits for a decision, of all sessions and hosts."""
        self._require_capability("inbox", "an inbox")
        return (await self._request(listing_messages.ListApprovals(limit), listing_messages.Approvals)).approvals

    async def search(self, text: str, limit: int = 50, *, session_id: str | None = None) -> list[listing_messages.Hit]:
        self._require_capability("search", "searching")
        request = listing_messages.SearchSessions(text, limit, session_id)
        return (await self._request(request, listing_messages.Hits, timeout=_SLOW_REQUEST_TIMEOUT)).hits

    async def fork_session(self, session_id: str, *, before_seq: int | None = None) -> listing_messages.Forked:
        """A new session with what was said in this one. Not asked again when the connection is lost: it may have begun."""
        self._require_capability("fork", "forks")
        request = listing_messages.ForkSession(session_id, before_seq)
        forked = await self._request(request, listing_messages.Forked, session_id, repeatable=False)
        self.remember_attach_token(forked.sessionId, forked.attachToken)
        return forked

    async def delete_session(self, session_id: str) -> None:
        self._require_capability("delete", "deleting sessions")
        await self._request(listing_messages.DeleteSession(session_id), listing_messages.Deleted, session_id, repeatable=False)

    async def list_nodes(self) -> list[listing_messages.Node]:
        """The nodes that share the daemon's store, itself among them. None where it is alone; an older one always is."""
        if not self.supports("nodes"):
            return []
        return (await self._request(listing_messages.ListNodes(), listing_messages.Nodes)).nodes

    async def drain_node(self, wait_seconds: float) -> listing_messages.NodeDrained:
        """Empties the node. It lets clients go on the way, this one too: asked again, it tells what came of it."""
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
        """What became of a flow so far, in REP's words."""
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
        """How the session works from its next run on. None leaves a thing as it is."""
        request = extension_messages.ConfigureSession(session_id, provider, model, policy, thinking, title)
        await self._request(request, extension_messages.Configured, session_id)

    async def compact_session(self, session_id: str, instructions: str = "") -> str:
        """Starts a run that summarises the conversation; returns its id. Not asked again when the connection is lost."""
        request = extension_messages.CompactSession(session_id, instructions)
        return (await self._request(request, extension_messages.ChoreStarted, session_id, repeatable=False)).runId

    async def undo_run(self, session_id: str, *, redo: bool = False, force: bool = False) -> str:
        """Starts a run that takes back what the last one changed; returns its id. Not asked again when the connection is
        lost: a second one would take back another."""
        request = extension_messages.UndoRun(session_id, redo, force)
        return (await self._request(request, extension_messages.ChoreStarted, session_id, repeatable=False)).runId

    async def get_diff(self, session_id: str, *, run_id: str | None = None) -> str:
        request = extension_messages.DiffSession(session_id, run_id)
        return (await self._request(request, extension_messages.Diff, session_id, timeout=_SLOW_REQUEST_TIMEOUT)).diff

    async def list_models(self) -> list[extension_messages.ModelListing]:
        return (await self._request(extension_messages.ListModels(), extension_messages.Models)).models

    async def list_server_models(self, provider: str) -> list[str] | None:
        """The models that a provider's server lists; None when it has no list."""
        return (await self._request(extension_messages.ListModels(provider), extension_messages.Models)).serverModels or None

    async def list_templates(self, root: str) -> list[extension_messages.Template]:
        """The skills and prompts of a folder, the user's own, and the extensions."""
        return (await self._request(extension_messages.ListTemplates(root), extension_messages.Templates)).templates

    async def list_presets(self, root: str) -> list[extension_messages.Preset]:
        """Those of a folder and the user's own, also those that cannot be used."""
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
        """Where a token is required, a connection commands only what it is attached to. Beyond the head, nothing is replayed."""
        attach = messages.AttachSession(_MAX_SEQ, session_id, self._attach_tokens[session_id])
        await self._connection.request(attach, messages.AttachAnswer, session_id=session_id)


def _make_message_id() -> str:
    return ids.format_id("msg", time.time_ns() // 1_000_000, secrets.randbits(80))


def _find_unsupported_feature(request: messages.StartSession) -> str | None:
    """What only a daemon with our additions can do, by name."""
    wishes = {
        "policies": request.policy,
        "levels of thinking": request.thinking,
        "limits": request.limits,
        "worktrees": request.worktree,
        "the sandbox `bubblewrap`": request.sandboxProvider == "bubblewrap",
        "the provider `auto`": request.provider == "auto",
    }
    return next((name for name, wish in wishes.items() if wish), None)
