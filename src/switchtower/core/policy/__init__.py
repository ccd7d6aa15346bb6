"""Decides what a tool call needs before it runs: nothing, a user's approval, or it never runs. Pure; it reads words, not
files.

`judge` is the entry point for all other packages. `rules` has the profiles and the users' rules; `secrets` and `paths`
classify files. `shell` parses a shell command and `command_analysis` inspects it: `invocations` finds everything that it may
run, and where. `coverage` decides whether rules that allow cover it, with `arguments` and `patterns`; `programs`, `tables` and
`destructive` are tables.
"""

from switchtower.core.policy.command_analysis import FileOperands as FileOperands
from switchtower.core.policy.command_analysis import find_operands as find_operands
from switchtower.core.policy.judge import Policy as Policy
from switchtower.core.policy.paths import escape_glob as escape_glob
from switchtower.core.policy.paths import is_protected as is_protected
from switchtower.core.policy.paths import is_secret as is_secret
from switchtower.core.policy.paths import locate_in_workspace as locate_in_workspace
from switchtower.core.policy.rules import COMMANDS as COMMANDS
from switchtower.core.policy.rules import PROFILES as PROFILES
from switchtower.core.policy.rules import READS as READS
from switchtower.core.policy.rules import TOOLS_OF_SERVERS as TOOLS_OF_SERVERS
from switchtower.core.policy.rules import WRITES as WRITES
from switchtower.core.policy.rules import Judgement as Judgement
from switchtower.core.policy.rules import Ruling as Ruling
from switchtower.core.policy.rules import describe_always as describe_always
from switchtower.core.policy.rules import format_rule as format_rule
from switchtower.core.policy.rules import matches_tool as matches_tool
from switchtower.core.policy.rules import parse_rules as parse_rules
