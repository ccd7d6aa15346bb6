"""A profile and all rules in force, with one question for each step of a judgement: which rule speaks about this call?"""

from collections.abc import Sequence

from msgspec import Struct

from switchtower.core import events
from switchtower.core.policy import commands, paths, patterns, profiles, rules
from switchtower.core.policy.profiles import ToolKind
from switchtower.core.policy.rulings import Judgement, Ruling, ask, deny


class PolicyRules(Struct, frozen=True):
    profile: str
    configured: tuple[events.Rule, ...] = ()
    granted: tuple[events.Rule, ...] = ()
    """Made by "always" in this session. For commands they hold only in the workspace's own folder and with its own input."""

    @property
    def rules(self) -> tuple[events.Rule, ...]:
        return (*self.configured, *self.granted)

    def default_ruling(self, kind: ToolKind) -> Ruling:
        return profiles.default_ruling(self.profile, kind)

    def refuse(self, reason: str) -> Judgement:
        """For what nobody can allow in advance: a question, or a no where nobody is to be asked."""
        return deny(reason) if self.profile == "read-only" else ask(reason)

    def find_file_rule(self, ruling: Ruling, tool: str, files: Sequence[paths.Parts], workspace: str) -> events.Rule | None:
        """A rule that asks or denies, and speaks about this tool or one of these files."""
        for rule in self.rules:
            if rule.effect == ruling and rules.is_file_restriction(rule, tool, files, workspace):
                return rule
        return None

    def find_rule_below(self, tool: str, folders: Sequence[paths.Parts], workspace: str) -> events.Rule | None:
        """A rule that asks or denies, and speaks about files that a look through these folders would meet."""
        for rule in self.rules:
            if rule.effect == Ruling.ALLOW or rule.path is None or not rules.is_for_tool(rule, tool):
                continue
            if any(paths.can_match_below(paths.parse_path_pattern(rule.path), folder, workspace) for folder in folders):
                return rule
        return None

    def find_command_rule(self, ruling: Ruling, tool: str, seen: commands.CommandAnalysis) -> events.Rule | None:
        """A rule that asks or denies, and speaks about some part of this command."""
        for rule in self.rules:
            if rule.effect != ruling or not rules.is_for_tool(rule, tool):
                continue
            if rule.command is not None and not commands.is_matched_by(seen, patterns.parse_rule_pattern(rule.command)):
                continue
            if rule.path is None or commands.has_path_match(seen, paths.parse_path_pattern(rule.path)):
                return rule
        return None

    def has_restrictions(self, tool: str) -> bool:
        return any(rule.effect != Ruling.ALLOW and rules.is_for_tool(rule, tool) for rule in self.rules)

    def restricts_paths(self, tool: str) -> bool:
        return any(rule.effect != Ruling.ALLOW and rule.path is not None and rules.is_for_tool(rule, tool) for rule in self.rules)

    def list_allowing_rules(self, tool: str, files: Sequence[paths.Parts], workspace: str) -> list[events.Rule]:
        """Rules that allow this tool each of these files."""
        return [
            rule for rule in self.rules if rule.effect == Ruling.ALLOW and rules.is_file_permission(rule, tool, files, workspace)
        ]

    def list_commit_rules(self, tool: str, message: object) -> list[events.Rule]:
        return [rule for rule in self.rules if rules.allows_commit(rule, tool, message)]

    def list_allowed_commands(self, tool: str) -> list[patterns.CommandPattern]:
        """What configured rules allow this tool to run. One with a path speaks about files and says nothing here."""
        return _parse_command_patterns(self.configured, tool)

    def list_granted_commands(self, tool: str) -> list[patterns.CommandPattern]:
        return _parse_command_patterns(self.granted, tool)


def _parse_command_patterns(listed: Sequence[events.Rule], tool: str) -> list[patterns.CommandPattern]:
    return [
        patterns.parse_rule_pattern("*" if rule.command is None else rule.command)
        for rule in listed
        # A rule for commands is no rule for servers: those live on, and their tools are offered to the model.
        if rule.effect == Ruling.ALLOW and rule.path is None and (tool == "run" or rule.tool is not None)
        if rules.is_for_tool(rule, tool)
    ]


def describe_rule(rule: events.Rule) -> str:
    return f"the rule `{shorten(rules.format_rule(rule))}` says so"


def shorten(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:60]}…{text[-40:]}"
