"""The instructions, skills, prompts and mentioned files that the user and the workspace provide to an agent.

Nothing is cached: each call reads the files as they are. The calls block and belong on a thread. They do not raise for what they
find; they return a problem as text.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from switchtower.core import events
from switchtower.engines.agent.prompts import expansion, files, system_prompt, templates

IsTrusted = Callable[[str], bool]
"""Returns whether the owner trusts a workspace."""


class PromptCatalog:
    def __init__(self, user_folder: Path | None, trusts: IsTrusted = lambda workspace: True) -> None:
        """A workspace that is not trusted provides nothing but the files that a message mentions."""
        self._trusts = trusts
        self._user_folder = user_folder.absolute() if user_folder is not None else None

    def list_templates(self, workspace: str) -> tuple[templates.Template, ...]:
        """Lists the templates that a message can call with `/name`, by name."""
        known = self._load_catalog(workspace).templates
        return tuple(known[name] for name in sorted(known))

    def build_system_prompt(
        self,
        workspace: str,
        *,
        tools: Sequence[str],
        policy: str,
        sandbox: str,
        headless: bool,
        preset: events.Preset | None = None,
    ) -> str:
        return system_prompt.build_system_prompt(
            workspace,
            self._user_folder,
            tools=tools,
            policy=policy,
            sandbox=sandbox,
            headless=headless,
            preset=preset,
            trusted=self._trusts(workspace),
        )

    def expand_message(self, text: str, workspace: str) -> expansion.MessageExpansion:
        return expansion.expand_message(text, workspace, self._user_folder, trusted=self._trusts(workspace))

    def find_template(self, name: str, workspace: str) -> templates.Template | None:
        """Returns the template that a message calls by this name."""
        return self._load_catalog(workspace).templates.get(name)

    def _load_catalog(self, workspace: str) -> templates.TemplateCatalog:
        return templates.load_catalog(workspace, self._user_folder, trusted=self._trusts(workspace))

    def read_skill(self, name: str, workspace: str) -> str | None:
        """Returns the whole text of a skill, for an agent that asks for it by name; None when no skill has that name."""
        template = self.find_template(name, workspace)
        if template is None or template.kind != "skill":
            return None
        try:
            return templates.read_template(template, workspace, self._user_folder)
        except files.PromptFileError as trouble:
            return f"[`{template.path}` cannot be used: {trouble}]"
