"""What the user and the workspace offer to an agent: instructions, skills, prompts and the files that a message names.

Nothing is remembered: each call looks at the files as they are. The calls block and belong on a thread; none raises for
what it finds, a problem comes back as text.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from switchtower.core import events
from switchtower.engines.agent.prompts import expansion, reading, system, templates

Trusts = Callable[[str], bool]
"""Whether the owner trusts a workspace."""


class Shelf:
    def __init__(self, user_folder: Path | None, trusts: Trusts = lambda workspace: True) -> None:
        """Of a workspace that is not trusted nothing is offered, but for the files that a message names."""
        self._trusts = trusts
        self._user_folder = user_folder.absolute() if user_folder is not None else None

    def listed(self, workspace: str) -> tuple[templates.Template, ...]:
        """What a message can call with `/name`, by name."""
        known = self._catalogue(workspace).templates
        return tuple(known[name] for name in sorted(known))

    def system(
        self,
        workspace: str,
        *,
        tools: Sequence[str],
        policy: str,
        sandbox: str,
        headless: bool,
        preset: events.Preset | None = None,
    ) -> str:
        return system.prompt(
            workspace,
            self._user_folder,
            tools=tools,
            policy=policy,
            sandbox=sandbox,
            headless=headless,
            preset=preset,
            trusted=self._trusts(workspace),
        )

    def expand(self, text: str, workspace: str) -> expansion.Expansion:
        return expansion.expand(text, workspace, self._user_folder, trusted=self._trusts(workspace))

    def template(self, name: str, workspace: str) -> templates.Template | None:
        """What a message calls by this name."""
        return self._catalogue(workspace).templates.get(name)

    def _catalogue(self, workspace: str) -> templates.Catalogue:
        return templates.catalogue(workspace, self._user_folder, trusted=self._trusts(workspace))

    def skill(self, name: str, workspace: str) -> str | None:
        """The whole text of a skill, for an agent that asks for it by name; None when there is none of that name."""
        template = self.template(name, workspace)
        if template is None or template.kind != "skill":
            return None
        try:
            return templates.text_of(template, workspace, self._user_folder)
        except reading.Trouble as trouble:
            return f"[`{template.path}` cannot be used: {trouble}]"
