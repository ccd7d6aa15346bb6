"""Every command and who handles it."""

from collections.abc import Awaitable, Callable
from typing import cast

from switchtower.protocols.pi.handlers.answers import AnswerHandlers
from switchtower.protocols.pi.handlers.configuring import ConfiguringHandlers
from switchtower.protocols.pi.handlers.hall import Hall, SessionHandler, Visitor, for_session
from switchtower.protocols.pi.handlers.looks import LookHandlers
from switchtower.protocols.pi.handlers.server import ServerHandlers
from switchtower.protocols.pi.handlers.sessions import SessionHandlers
from switchtower.protocols.pi.handlers.work import WorkHandlers
from switchtower.protocols.pi.order import inbound, ports

ServerHandler = Callable[[inbound.Request, Visitor], ports.Handled | Awaitable[ports.Handled]]


def handlers(hall: Hall, sessions: SessionHandlers, work: WorkHandlers) -> dict[str, ports.Handler]:
    looks, configuring, answers, server = (
        LookHandlers(hall),
        ConfiguringHandlers(hall),
        AnswerHandlers(hall),
        ServerHandlers(hall),
    )
    of_server: list[ServerHandler] = [
        sessions.list_sessions,
        sessions.create_session,
        sessions.delete_session,
        sessions.list_stored_sessions,
        sessions.load_session,
        server.get_metrics,
        server.health_check,
    ]
    of_session: list[SessionHandler] = [
        sessions.switch_session,
        sessions.new_session,
        sessions.switch_session_file,
        sessions.fork,
        sessions.get_fork_messages,
        sessions.list_session_files,
        work.prompt,
        work.steer,
        work.follow_up,
        work.abort,
        work.compact,
        work.abort_compaction,
        work.abort_retry,
        work.bash,
        work.abort_bash,
        looks.get_state,
        looks.get_messages,
        looks.get_last_assistant_text,
        looks.get_session_stats,
        looks.get_context_usage,
        looks.get_available_models,
        looks.get_commands,
        looks.get_skills,
        looks.get_tools,
        looks.export_html,
        looks.export_jsonl,
        configuring.set_model,
        configuring.cycle_model,
        configuring.set_thinking_level,
        configuring.cycle_thinking_level,
        configuring.set_session_name,
        configuring.set_auto_compaction,
        configuring.set_auto_retry,
        answers.extension_ui_response,
    ]
    return {
        **{_name(handle): cast(ports.Handler, handle) for handle in of_server},
        **{_name(handle): for_session(hall, handle) for handle in of_session},
    }


def _name(handle: ServerHandler | SessionHandler) -> str:
    """A handler is named as its command."""
    return handle.__name__
