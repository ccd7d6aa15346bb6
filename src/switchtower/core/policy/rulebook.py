"""A profile and all rules in force, with one question for each step of a judgement: which rule speaks about this call?"""

from collections.abc import Sequence

from msgspec import Struct

from switchtower.core import events
from switchtower.core.policy import commands, paths, patterns, profiles, rules
from switchtower.core.policy.profiles import Kind
from switchtower.core.policy.rulings import Judgement, Ruling, ask, deny


class Rulebook(Struct, frozen=True):
    profile: str
    configured: tuple[events.Rule, ...] = ()
    granted: tuple[events.Rule, ...] = ()
    """Made by "always" in this session. For commands they hold only in the workspace's own folder and with its own input."""

    @property
    def rules(self) -> tuple[events.Rule, ...]:
        return (*self.configured, *self.granted)

    def default(self, kind: Kind) -> Ruling:
        return profiles.default(self.profile, kind)

    def refusal(self, reason: str) -> Judgement:
        """For what nobody can allow in advance: a question, or a no where nobody is to be asked."""
        return deny(reason) if self.profile == "read-only" else ask(reason)

    def of_files(self, ruling: Ruling, tool: str, files: Sequence[paths.Parts], workspace: str) -> events.Rule | None:
        """A rule that asks or denies, and speaks about this tool or one of these files."""
        for rule in self.rules:
            if rule.effect == ruling and rules.restricts_files(rule, tool, files, workspace):
                return rule
        return None

    def of_files_below(self, tool: str, folders: Sequence[paths.Parts], workspace: str) -> events.Rule | None:
        """A rule that asks or denies, and speaks about files that a look through these folders would meet."""
        for rule in self.rules:
            if rule.effect == Ruling.ALLOW or rule.path is None or not rules.is_for_tool(rule, tool):
                continue
            if any(paths.may_hold(paths.pattern(rule.path), folder, workspace) for folder in folders):
                return rule
        return None

    def of_command(self, ruling: Ruling, tool: str, seen: commands.Look) -> events.Rule | None:
        """A rule that asks or denies, and speaks about some part of this command."""
        for rule in self.rules:
            if rule.effect != ruling or not rules.is_for_tool(rule, tool):
                continue
            if rule.command is not None and not commands.hit_by(seen, patterns.of_rule(rule.command)):
                continue
            if rule.path is None or commands.touches(seen, paths.pattern(rule.path)):
                return rule
        return None

    def restricts(self, tool: str) -> bool:
        return any(rule.effect != Ruling.ALLOW and rules.is_for_tool(rule, tool) for rule in self.rules)

    def restricts_paths(self, tool: str) -> bool:
        return any(rule.effect != Ruling.ALLOW and rule.path is not None and rules.is_for_tool(rule, tool) for rule in self.rules)

    def allowing_files(self, tool: str, files: Sequence[paths.Parts], workspace: str) -> list[events.Rule]:
        """Rules that allow this tool each of these files."""
        return [rule for rule in self.rules if rule.effect == Ruling.ALLOW and rules.allows_files(rule, tool, files, workspace)]

    def allowing_commit(self, tool: str, message: object) -> list[events.Rule]:
        return [rule for rule in self.rules if rules.allows_commit(rule, tool, message)]

    def allowed_commands(self, tool: str) -> list[patterns.Pattern]:
        """What configured rules allow this tool to run. One with a path speaks about files and says nothing here."""
        return _commands_in(self.configured, tool)

    def granted_commands(self, tool: str) -> list[patterns.Pattern]:
        return _commands_in(self.granted, tool)


def _commands_in(listed: Sequence[events.Rule], tool: str) -> list[patterns.Pattern]:
    return [
        patterns.of_rule("*" if rule.command is None else rule.command)
        for rule in listed
        # A rule for commands is no rule for servers: those live on, and their tools are offered to the model.
        if rule.effect == Ruling.ALLOW and rule.path is None and (tool == "run" or rule.tool is not None)
        if rules.is_for_tool(rule, tool)
    ]


def said_by(rule: events.Rule) -> str:
    return f"the rule `{shortened(rules.shown(rule))}` says so"


def shortened(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:60]}…{text[-40:]}"
