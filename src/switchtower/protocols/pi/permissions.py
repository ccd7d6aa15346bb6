"""What each command does, for `core/roles.py`."""

from switchtower.core.roles import Action
from switchtower.protocols.pi import messages

COMMAND_ACTIONS: dict[str, Action] = {
    "list_sessions": Action.WATCH,
    "create_session": Action.START,
    "delete_session": Action.DELETE,
    "switch_session": Action.WATCH,
    "get_metrics": Action.WATCH,
    "health_check": Action.WATCH,
    "list_stored_sessions": Action.WATCH,
    "load_session": Action.START,
    "get_available_models": Action.WATCH,
    "get_commands": Action.WATCH,
    "get_skills": Action.WATCH,
    "get_tools": Action.WATCH,
    "list_session_files": Action.WATCH,
    "prompt": Action.SEND,
    "steer": Action.SEND,
    "follow_up": Action.SEND,
    "abort": Action.STOP,
    "get_state": Action.WATCH,
    "get_messages": Action.WATCH,
    "set_model": Action.CONFIGURE,
    "cycle_model": Action.CONFIGURE,
    "set_thinking_level": Action.CONFIGURE,
    "cycle_thinking_level": Action.CONFIGURE,
    "set_session_name": Action.CONFIGURE,
    "compact": Action.CONFIGURE,
    "abort_compaction": Action.STOP,
    "set_auto_compaction": Action.CONFIGURE,
    "set_auto_retry": Action.CONFIGURE,
    "abort_retry": Action.STOP,
    "bash": Action.ACT,
    "abort_bash": Action.STOP,
    "get_session_stats": Action.WATCH,
    # It writes a file.
    "export_html": Action.ACT,
    "export_jsonl": Action.ACT,
    "new_session": Action.START,
    "switch_session_file": Action.START,
    "fork": Action.FORK,
    "get_fork_messages": Action.WATCH,
    "get_last_assistant_text": Action.WATCH,
    "get_context_usage": Action.WATCH,
    "extension_ui_response": Action.ANSWER,
}


def get_action(type_: str, body: messages.Command) -> Action | None:
    """None for a command without a row, which needs an admin."""
    if isinstance(body, messages.ExtensionUiResponse):
        answer = body.response
        if isinstance(answer, messages.Confirmed) and answer.always:
            return Action.ALLOW_ALWAYS
    return COMMAND_ACTIONS.get(type_)
