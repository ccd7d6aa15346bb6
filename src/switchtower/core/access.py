"""What a connection may do, as the daemon established when it was accepted."""

from msgspec import Struct

from switchtower.core import events, roles


class ProcessUnattributed(Exception):
    """The process at the other end cannot be attributed to the owner nor to a run. Its connection is refused."""


class Access(Struct, frozen=True):
    name: str
    via: str
    """How it arrived, for provenance: `cli` for the owner's socket, `app` for WebSockets."""
    trusted: bool
    """The owner: may attach to any session without a token."""
    run_id: str | None = None
    """The run that has started the process at the other end. Such a process may not decide, nor act for the owner."""
    role: roles.Role = roles.Role.ADMIN
    """Each place in the daemon that makes an access names it. A node of the version before names none for its pi clients."""
    device: str = ""
    """What it says of itself: its access token's name, its user agent."""
    address: str = ""
    """The machine that it came from."""

    @property
    def is_from_run(self) -> bool:
        return self.run_id is not None

    def make_actor(self, client: str | None = None) -> events.Actor:
        return events.Actor(
            name=self.name,
            via=self.via,
            client=client,
            device=self.device or None,
            address=self.address or None,
            run_id=self.run_id,
        )

    def check_action(self, action: roles.Action | None) -> None:
        """Raises `errors.RoleForbidden`."""
        roles.check_role(self.role, action)
