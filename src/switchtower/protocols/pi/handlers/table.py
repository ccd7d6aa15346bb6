"""Every command and who handles it."""

from collections.abc import Awaitable, Callable
from typing import cast

from switchtower.protocols.pi.handlers.answers import UiResponseHandlers
from switchtower.protocols.pi.handlers.configuring import ConfigurationHandlers
from switchtower.protocols.pi.handlers.hall import HandlerContext, SessionHandler, Client, bind_session
from switchtower.protocols.pi.handlers.looks import QueryHandlers
from switchtower.protocols.pi.handlers.server import ServerHandlers
from switchtower.protocols.pi.handlers.sessions import SessionHandlers
from switchtower.protocols.pi.handlers.work import RunHandlers
from switchtower.protocols.pi.order import inbound, ports

ServerHandler = Callable[[inbound.PiRequest, Client], ports.HandlerResult | Awaitable[ports.HandlerResult]]


def make_handlers(context: HandlerContext, sessions: SessionHandlers, work: RunHandlers) -> dict[str, ports.Handler]:
    looks, configuring, answers, server = (
        QueryHandlers(context),
        ConfigurationHandlers(context),
        UiResponseHandlers(context),
        ServerHandlers(context),
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
        **{_get_command_name(handle): cast(ports.Handler, handle) for handle in of_server},
        **{_get_command_name(handle): bind_session(context, handle) for handle in of_session},
    }


def _get_command_name(handle: ServerHandler | SessionHandler) -> str:
    """A handler is named as its command."""
    return handle.__name__
