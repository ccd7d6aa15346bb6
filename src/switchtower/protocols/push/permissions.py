"""What each request does, for `core/roles.py`."""

from switchtower.core.roles import Action
from switchtower.protocols.push import extensions, messages

REQUEST_ACTIONS: dict[str, Action] = {
    "hello": Action.WATCH,
    "ping": Action.WATCH,
    "start_session": Action.START,
    "list_sessions": Action.WATCH,
    "attach_session": Action.WATCH,
    "resume_session": Action.WATCH,
    "send_user_message": Action.SEND,
    "submit_approval": Action.DECIDE,
    "cancel_run": Action.STOP,
    "get_session": Action.WATCH,
    "configure_session": Action.CONFIGURE,
    "queue_message": Action.SEND,
    "compact_session": Action.CONFIGURE,
    "undo_run": Action.RESTORE,
    "diff_session": Action.WATCH,
    "list_models": Action.WATCH,
    "list_templates": Action.WATCH,
    "list_presets": Action.WATCH,
    "answer_dialog": Action.ANSWER,
    "terminal_input": Action.TYPE,
    "terminal_resize": Action.TYPE,
    "list_terminals": Action.WATCH,
    "get_flow": Action.WATCH,
    "set_provider_variables": Action.MANAGE_NODES,
    "list_cards": Action.WATCH,
    "list_approvals": Action.WATCH,
    "search_sessions": Action.WATCH,
    "fork_session": Action.FORK,
    "delete_session": Action.DELETE,
    "list_trusted_folders": Action.WATCH,
    "trust_folder": Action.TRUST,
    "forget_folder": Action.TRUST,
    "list_nodes": Action.WATCH,
    "drain_node": Action.MANAGE_NODES,
}


def get_action(type_: str, payload: messages.Request | extensions.ExtensionRequest) -> Action | None:
    """None for a request without a row, which needs an admin."""
    if isinstance(payload, messages.SubmitApproval) and payload.decision == "approve" and payload.scope == "session":
        return Action.ALLOW_ALWAYS
    return REQUEST_ACTIONS.get(type_)
