"""Parses a shell command the way bash does, so that the command that is judged is the one that runs. Runs nothing and expands
nothing.

`script` has the result, `reader` finds the commands and here-documents, `words` reads one word. Where bash and this parser
could differ, the script has a doubt; no caller may treat a script with doubts as understood.
"""

from switchtower.core.policy.shell.reader import LONGEST as LONGEST
from switchtower.core.policy.shell.reader import parse_script as parse_script
from switchtower.core.policy.shell.script import Redirect as Redirect
from switchtower.core.policy.shell.script import Script as Script
from switchtower.core.policy.shell.script import ShellCommand as ShellCommand
from switchtower.core.policy.shell.script import ShellWord as ShellWord
