"""What a person far away may do in the folder of a run: look at files, search them, write one, run a command, ask git; and
ask a host about itself. Hands only. Whoever calls has the decision already, writes it down, and redacts what goes out.

Everything is async, takes the run's folder as `cwd` and works inside it. A result has the fields that relay gives it and is
bounded. What cannot or may not be done raises `Refused`; its message is what relay puts on the wire. A command that leaves
something running in the background leaves it to the run: `tools.running.processes.end_run` ends it.
"""

from switchtower.tools.workbench.host import TOOLS as TOOLS
from switchtower.tools.workbench.host import read_host_capabilities as read_host_capabilities
from switchtower.tools.workbench.host import diagnose_host as diagnose_host
from switchtower.tools.workbench.host import read_host_info as read_host_info
from switchtower.tools.workbench.listing import list_folder as list_folder
from switchtower.tools.workbench.logs import read_log_tail as read_log_tail
from switchtower.tools.workbench.paths import check_path as check_path
from switchtower.tools.workbench.reading import read_file as read_file
from switchtower.tools.workbench.refusals import OperationRefused as OperationRefused
from switchtower.tools.workbench.repository import read_git_diff as read_git_diff
from switchtower.tools.workbench.repository import read_git_status as read_git_status
from switchtower.tools.workbench.searching import search_folder as search_folder
from switchtower.tools.workbench.shell import run_bash as run_bash
from switchtower.tools.workbench.writing import check_write as check_write
from switchtower.tools.workbench.writing import preview_write as preview_write
from switchtower.tools.workbench.writing import write_file as write_file
