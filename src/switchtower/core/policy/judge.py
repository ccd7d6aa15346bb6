"""The judge: a call goes in, a ruling comes out. Everything else in this room is evidence for it. Pure, and it never raises.

What cannot be loosened comes first, then the rules that restrict, then what must be asked each time, then the rules that
allow, and the profile's default last. So a rule can turn a question into a yes, but never a wall into a question.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from switchtower.core import events
from switchtower.core.policy import judging_commands, judging_files, profiles
from switchtower.core.policy.profiles import ToolKind
from switchtower.core.policy.rulebook import PolicyRules
from switchtower.core.policy.rulings import Judgement


class Policy(Struct, frozen=True):
    """A profile, the rules of the configuration, and those that decisions of this session have made."""

    profile: str
    rules: Sequence[events.Rule] = ()
    granted: Sequence[events.Rule] = ()

    def __post_init__(self) -> None:
        if self.profile not in profiles.PROFILES:
            known = ", ".join(f"`{name}`" for name in profiles.PROFILES)
            raise ValueError(f"there is no policy profile `{self.profile}`; there are {known}")

    def with_grant(self, rule: events.Rule) -> "Policy":
        return Policy(self.profile, self.rules, (*self.granted, rule))

    def judge(self, tool: str, args: Mapping[str, Any], effect: str | None = None, workspace: str = "") -> Judgement:
        """`effect` is what a tool says of itself (`read`, `write`, `execute`); None when nobody knows, as with MCP tools."""
        book = PolicyRules(self.profile, tuple(self.rules), tuple(self.granted))
        try:
            return _judge_call(tool, args if isinstance(args, Mapping) else {}, effect, book, workspace)
        except Exception as error:  # A bug here must not open a door, and must not end a run either.
            return book.refuse(f"it could not be judged ({type(error).__name__})")


def _judge_call(tool: str, args: Mapping[str, Any], effect: str | None, book: PolicyRules, workspace: str) -> Judgement:
    kind = profiles.classify_tool(tool, effect)
    if kind is ToolKind.COMMAND:
        return judging_commands.judge_command(args, book, workspace)
    if kind is ToolKind.SERVER:
        return judging_commands.judge_server(args, book, workspace)
    return judging_files.judge_files(tool, kind, args, book, workspace)
