"""The operations that a remote user may run in the folder of a run: read and search files, write one, run a command, query git;
and query the host itself. This package only executes. The caller has the decision already, records it, and redacts the results.

Everything is async, takes the run's folder as `cwd` and works inside it. A result has the fields that relay defines and is
bounded. A refused operation raises `OperationRefused`; its message is what relay sends. Background processes that a command
leaves belong to the run: `tools.processes.commands.end_run` ends them.
"""

from switchtower.tools.remote_ops.files import check_write as check_write
from switchtower.tools.remote_ops.files import list_folder as list_folder
from switchtower.tools.remote_ops.files import preview_write as preview_write
from switchtower.tools.remote_ops.files import read_file as read_file
from switchtower.tools.remote_ops.files import search_folder as search_folder
from switchtower.tools.remote_ops.files import write_file as write_file
from switchtower.tools.remote_ops.host import TOOLS as TOOLS
from switchtower.tools.remote_ops.host import OperationRefused as OperationRefused
from switchtower.tools.remote_ops.host import check_path as check_path
from switchtower.tools.remote_ops.host import diagnose_host as diagnose_host
from switchtower.tools.remote_ops.host import read_host_capabilities as read_host_capabilities
from switchtower.tools.remote_ops.host import read_host_info as read_host_info
from switchtower.tools.remote_ops.host import read_log_tail as read_log_tail
from switchtower.tools.remote_ops.shell import read_git_diff as read_git_diff
from switchtower.tools.remote_ops.shell import read_git_status as read_git_status
from switchtower.tools.remote_ops.shell import run_bash as run_bash
