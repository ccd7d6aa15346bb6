"""Real nodes on a real PostgreSQL, and the installed command at the machine of each."""

from tests.nodes.conftest import folder as folder
from tests.nodes.conftest import shared_server as shared_server
from tests.nodes.conftest import start_cluster as start_cluster
