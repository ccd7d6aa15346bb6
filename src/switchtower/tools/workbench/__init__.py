"""What a person far away may do in the folder of a run: look at files, search them, write one, run a command, ask git; and
ask a host about itself. Hands only. Whoever calls has the decision already, writes it down, and redacts what goes out.

Everything is async, takes the run's folder as `cwd` and works inside it. A result has the fields that relay gives it and is
bounded. What cannot or may not be done raises `Refused`; its message is what relay puts on the wire. A command that leaves
something running in the background leaves it to the run: `tools.running.processes.end_run` ends it.
"""

from switchtower.tools.workbench.host import TOOLS as TOOLS
from switchtower.tools.workbench.host import host_capabilities as host_capabilities
from switchtower.tools.workbench.host import host_doctor as host_doctor
from switchtower.tools.workbench.host import host_info as host_info
from switchtower.tools.workbench.listing import list_folder as list_folder
from switchtower.tools.workbench.logs import logs_tail as logs_tail
from switchtower.tools.workbench.paths import check as check
from switchtower.tools.workbench.reading import read as read
from switchtower.tools.workbench.refusals import Refused as Refused
from switchtower.tools.workbench.repository import git_diff as git_diff
from switchtower.tools.workbench.repository import git_status as git_status
from switchtower.tools.workbench.searching import search as search
from switchtower.tools.workbench.shell import bash as bash
from switchtower.tools.workbench.writing import check_write as check_write
from switchtower.tools.workbench.writing import preview_of_write as preview_of_write
from switchtower.tools.workbench.writing import write as write
