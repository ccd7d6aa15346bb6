"""Reads a shell command the way bash does, so that what is judged is what will run. Runs nothing and expands nothing.

`script` says what comes out, `reader` finds the commands, `words` reads one word, `documents` the texts below a line. Where
bash and this room could differ, the script says so in its doubts; nobody may treat a script with doubts as understood.
"""

from switchtower.core.policy.shell.reader import LONGEST as LONGEST
from switchtower.core.policy.shell.reader import parse_script as parse_script
from switchtower.core.policy.shell.script import Redirect as Redirect
from switchtower.core.policy.shell.script import Script as Script
from switchtower.core.policy.shell.script import ShellCommand as ShellCommand
from switchtower.core.policy.shell.script import ShellWord as ShellWord
