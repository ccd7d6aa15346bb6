"""What to do about each error that a run can meet. Pure."""

_REMEDIES = {
    "MODEL_ERROR": "try again, or choose another model with `/model`",
    "PROVIDER_NOT_CONFIGURED": "choose another model with `/model`; `tower models` says what each one needs",
    "BUDGET_EXCEEDED": "send a message to go on with a fresh budget",
    "RUN_INTERRUPTED": "send a message to go on where it stopped",
    "RESTORE_FAILED": "look at `/diff`; the files that were changed since are left alone",
    "SANDBOX_UNAVAILABLE": "restore the folder or install the sandbox that is missing, or start a session with another",
    "NOT_STARTED": "check that the program is installed and in the PATH",
    "APPROVAL_EXPIRED": "send a message to go on; it will be asked again",
    "COMPACTION_FAILED": "try `/compact` again, or go on in a `/new` session",
    "MCP_SERVER_FAILED": "see `tower logs` for what the server said",
}


def find_remedy(code: str) -> str:
    return _REMEDIES.get(code, "")
