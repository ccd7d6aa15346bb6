"""`/brief`: the interview, and the task that is made of it."""

from tests.extensions.parts import DialogResponder
from tests.extensions.test_review import ReviewExtensionContext

from switchtower.extensions import brief

EVERYTHING = {
    "goal": "Logins survive a restart ",
    "constraints": "No new dependency",
    "done": "`make test` passes",
    "files": "src/login.py",
    "scope": "as small as possible",
    "plan": True,
}


async def test_the_answers_become_a_task_with_headings() -> None:
    person = DialogResponder({"responses": EVERYTHING})

    prompt = await brief.run(ReviewExtensionContext(None, person), "fix the logins")

    [asked] = person.asked
    assert (asked.method, asked.title) == ("interview", "A brief for: fix the logins")
    assert [question["id"] for question in asked.questions] == ["goal", "constraints", "done", "files", "scope", "plan"]
    assert [question["type"] for question in asked.questions] == ["text", "text", "text", "text", "single", "boolean"]
    assert prompt == (
        "# Task\nfix the logins\n\n## Goal\nLogins survive a restart\n\n## Constraints\nNo new dependency\n\n"
        "## Where to look first\nsrc/login.py\n\n## Size of the change\nKeep the change as small as possible.\n\n"
        "## Done when\n`make test` passes\n\nCheck this yourself before you say that it is done, and say what you saw.\n\n"
        "## First\nRead what matters and describe a plan. Change nothing until it was agreed to."
    )


async def test_what_was_not_answered_is_not_mentioned() -> None:
    person = DialogResponder({"responses": {"goal": "Logins survive a restart", "plan": False, "files": "  "}})

    prompt = await brief.run(ReviewExtensionContext(None, person), "")

    assert person.asked[0].title == "A brief for the agent"
    assert prompt == (
        "# Task\n\n## Goal\nLogins survive a restart\n\n"
        "## Done when\nSay how you checked that the goal is reached. If there are tests for this, run them."
    )


async def test_a_goal_is_asked_for_until_there_is_one() -> None:
    person = DialogResponder({"responses": {"scope": "huge"}}, {"responses": {"goal": "x"}})

    await brief.run(ReviewExtensionContext(None, person), "")

    again = person.asked[1].message
    assert "“What should be different when this is done?” needs an answer" in again
    assert "the answer to “How large may the change be?” is none of the options" in again
