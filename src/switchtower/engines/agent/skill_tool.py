"""The tool that hands a skill to the model by its name: a user's own skills lie where no other tool may read."""

import asyncio
from typing import Annotated

from msgspec import Meta, Struct

from switchtower.engines.agent.prompts.shelf import PromptCatalog
from switchtower.engines.agent.prompts.system import READ_SKILL
from switchtower.tools import outcome, tool


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
