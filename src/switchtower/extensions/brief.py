"""`/brief`: asks a few questions first, so that the agent starts with a task that states the goal and the criteria for being
done.
"""

from typing import Any

from switchtower.extensions import port
from switchtower.extensions.port import InterviewQuestion

_SMALL, _USUAL, _LARGE = "as small as possible", "whatever the task needs", "clean up what is in the way too"
_SCOPES = {
    _SMALL: "Keep the change as small as possible.",
    _USUAL: "Change whatever the task needs, and nothing else.",
    _LARGE: "Clean up what is in the way too, in steps of its own.",
}

QUESTIONS = (
    InterviewQuestion("goal", "text", "What should be different when this is done?", required=True),
    InterviewQuestion("constraints", "text", "What must not change, or must be used?"),
    InterviewQuestion("done", "text", "How do we know that it is done? A command, a test, something to look at"),
    InterviewQuestion("files", "text", "Which files or folders should be looked at first?"),
    InterviewQuestion("scope", "single", "How large may the change be?", options=tuple(_SCOPES)),
    InterviewQuestion("plan", "boolean", "Describe a plan first, and change nothing yet?"),
)


async def run(ctx: port.ExtensionContext, arguments: str) -> str | None:
    answers = await ctx.ui.interview(f"A brief for: {_shorten(arguments)}" if arguments else "A brief for the agent", QUESTIONS)
    return build_prompt(arguments, answers)


def build_prompt(arguments: str, answers: dict[str, Any]) -> str:
    """Returns the task as a text with headings; unanswered questions are left out."""
    parts = [f"# Task\n{arguments}" if arguments else "# Task", f"## Goal\n{answers['goal'].strip()}"]
    if constraints := answers.get("constraints"):
        parts.append(f"## Constraints\n{constraints.strip()}")
    if files := answers.get("files"):
        parts.append(f"## Where to look first\n{files.strip()}")
    if scope := answers.get("scope"):
        parts.append(f"## Size of the change\n{_SCOPES[scope]}")
    done = answers.get("done")
    parts.append(
        f"## Done when\n{done.strip()}\n\nCheck this yourself before you say that it is done, and say what you saw."
        if done
        else "## Done when\nSay how you checked that the goal is reached. If there are tests for this, run them."
    )
    if answers.get("plan"):
        parts.append("## First\nRead what matters and describe a plan. Change nothing until it was agreed to.")
    return "\n\n".join(parts)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"


EXTENSION = port.Extension(
    name="brief",
    description="Asks for the goal, the limits and the proof before the work begins",
    commands=(port.ExtensionCommand("brief", "Answer a few questions and have them made into a task", run),),
)
