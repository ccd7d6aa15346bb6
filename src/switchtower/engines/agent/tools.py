"""The agent's tools for asking the user a question and for reading a skill. Asking is not offered in headless runs, where no user
would answer. A user's own skills lie in a folder that no other tool may read.
"""

import asyncio
from typing import Annotated

from msgspec import Meta, Struct

from switchtower.engines.agent.prompts.system_prompt import READ_SKILL, PromptCatalog
from switchtower.extensions import port
from switchtower.tools import outcome, tool

AnswerOption = Annotated[str, Meta(min_length=1, max_length=200)]


class AskUserArguments(Struct, frozen=True, forbid_unknown_fields=True):
    question: Annotated[str, Meta(min_length=1, max_length=1_000, pattern=r"\S", description="One question, short and complete")]
    options: Annotated[
        Annotated[list[AnswerOption], Meta(min_length=2, max_length=20)] | None,
        Meta(description="Answers to choose from; without them the person writes one"),
    ] = None


class AskUserTool(tool.CoreTool[AskUserArguments]):
    name = "ask_user"
    description = (
        "Ask the user a question and wait for the answer. Only when a wrong guess would be costly and nothing else can tell you"
    )
    effect = outcome.ToolEffect.READ  # it changes nothing, so it needs no approval
    arguments = AskUserArguments
    time_limit = None  # the dialog has its own time limit

    def __init__(self, ui: port.Ui) -> None:
        self._ui = ui

    def check_arguments(self, arguments: AskUserArguments, context: outcome.ToolContext) -> None:
        options = arguments.options or []
        if len(set(options)) < len(options) or not all(option.strip() for option in options):
            raise outcome.ToolFailed(
                outcome.ToolErrorType.UNKNOWN, "the options must differ from each other, and none may be blank"
            )

    async def run(self, arguments: AskUserArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        self.check_arguments(arguments, context)
        try:
            if arguments.options is not None:
                return outcome.ToolOutput(await self._ui.select(arguments.question, arguments.options))
            answer = await self._ui.input(arguments.question)
        except port.ExtensionError as unanswered:
            message = f"{unanswered}. Go on without the answer and say what you assumed, or stop and say what you need"
            raise outcome.ToolFailed(outcome.ToolErrorType.UNKNOWN, message) from None
        return outcome.ToolOutput(answer or "(the answer was left empty)")


class ReadSkillArguments(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=200, description="The skill's name, as it is listed")]


class ReadSkillTool(tool.CoreTool[ReadSkillArguments]):
    name = READ_SKILL
    description = "Get the whole text of a skill that is listed in your instructions"
    effect = outcome.ToolEffect.READ
    arguments = ReadSkillArguments

    def __init__(self, catalog: PromptCatalog) -> None:
        self._catalog = catalog

    async def run(self, arguments: ReadSkillArguments, context: outcome.ToolContext) -> outcome.ToolOutput:
        text = await asyncio.to_thread(self._catalog.read_skill, arguments.name, context.workspace)
        if text is None:
            raise outcome.ToolFailed(outcome.ToolErrorType.FILE_NOT_FOUND, f"there is no skill `{arguments.name}`")
        return outcome.ToolOutput(text)
