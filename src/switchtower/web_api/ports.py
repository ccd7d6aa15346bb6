"""What the endpoints need of the hub, of the accounts and of what refuses. They know these and not the rooms behind them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from switchtower.core import events, roles
from switchtower.core.ports import journal, registry, session_service
from switchtower.protocols.relay import messages
from switchtower.transports.stream import ConnectionOrigin
from switchtower.web_api.endpoints import page_files
from switchtower.web_api.responses import HttpError

FindRun = Callable[[ConnectionOrigin], str | None]
"""The run, by the core's id, whose process is at the other end; None when it is of no run. Raises `Unattributed`."""
ConvertFailure = Callable[[Exception], HttpError | None]
"""What a refusal of the accounts means to who asked; None for what is none."""
CanRead = Callable[[ConnectionOrigin, Mapping[str, str]], bool]
"""Whether somebody without a token may see how the daemon does, from where they are and what their request says."""
LOGIN_SECONDS = 86_400
"""How long a login lasts, and its cookie with it."""


class HubPort(Protocol):
    async def list_runs(self, limit: int) -> list[messages.RunRow]: ...

    async def find_run(self, run_id: str) -> messages.RunRow | None: ...

    async def read_history(
        self, run_id: str, *, limit: int, before_id: int | None, include_output: bool
    ) -> list[messages.Message] | None: ...

    async def read_screen(self, run_id: str) -> dict[str, Any] | None:
        """What a late joiner paints. None: there is no such run, or it has no terminal."""
        ...

    async def send_input(self, run_id: str, request: messages.SendInput, actor: events.Actor) -> None:
        """Raises `errors.Refused`."""
        ...

    async def list_hosts(self) -> list[messages.HostRow]: ...

    async def set_host_state(self, host_id: str, state: str, by: events.Actor | None = None) -> bool:
        """False here, as in the next three: there is no such host."""
        ...

    async def rename_host(self, host_id: str, name: str, by: events.Actor | None = None) -> bool: ...

    async def remove_host(self, host_id: str, by: events.Actor | None = None) -> bool: ...

    async def rotate_host(self, host_id: str, by: events.Actor | None = None) -> bool: ...


class IdentityPort(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def token_id(self) -> str | None:
        """None for the owner's token, which nobody revokes."""
        ...

    @property
    def expires_at_ms(self) -> int | None: ...

    @property
    def role(self) -> roles.Role: ...

    def describe_device(self, user_agent: str) -> str: ...


class AccountsPort(Protocol):
    """Refusals are exceptions of its own; an `Explain` knows them."""

    async def login(self, username: str, password: str, address: str, *, client: str = "", device: str = "") -> str: ...

    def make_device_token(self, name: str) -> str:
        """For a client that has logged in, which brings it along as `device` the next time."""
        ...

    async def exchange_token(
        self, first_token: str, *, client: str = "page", address: str = "", counted: bool = False
    ) -> str: ...

    async def verify(self, token: str) -> IdentityPort | None: ...

    async def list_tokens(self, user: str | None = None) -> Sequence[registry.Token]: ...

    async def create_token(
        self, name: str, user: str, scope: roles.Role | None, lifetime_ms: int | None, by: events.Actor
    ) -> tuple[str, registry.Token]: ...

    async def revoke_token(self, token_id: str, by: events.Actor) -> bool: ...

    async def list_notes(self, limit: int, *, before: int | None = None) -> Sequence[tuple[int, journal.AuditNote]]: ...

    async def list_users(self) -> Sequence[registry.User]: ...

    async def add_user(self, name: str, password: str, by: events.Actor, *, role: roles.Role = roles.NEW_USER) -> None: ...

    async def set_role(self, name: str, role: roles.Role, by: events.Actor) -> None: ...

    async def set_password(self, name: str, password: str, by: events.Actor) -> None: ...

    async def remove_user(self, name: str, by: events.Actor) -> None: ...


class VisitTokensPort(Protocol):
    """Tokens that let their bearer in once."""

    def issue(self) -> tuple[str, int]:
        """A new one, and when it ends in milliseconds."""
        ...


class MonitorPort(Protocol):
    """How the daemon does."""

    def list_unready_reasons(self) -> list[str]: ...

    async def format_prometheus(self) -> str:
        """In Prometheus' format."""
        ...

    async def collect_figures(self) -> dict[str, Any]: ...


class PushSubscriptionsPort(Protocol):
    """Browsers that asked to be told. Its refusals are exceptions that the `Explain` knows."""

    async def get_public_key(self) -> str: ...

    async def subscribe(self, user: str, endpoint: str, p256dh: str, auth: str) -> None: ...

    async def unsubscribe(self, user: str, endpoint: str) -> bool: ...


class OptionalEndpoints(Struct, frozen=True, kw_only=True):
    """What the port offers beyond relay's own endpoints; each may be missing."""

    page: page_files.PageFiles | None = None
    """What is shown at all paths that are no endpoint's."""
    monitor: MonitorPort | None = None
    decisions: journal.Audit | None = None
    pushes: PushSubscriptionsPort | None = None
    sessions: session_service.SessionService | None = None
    """For what apps may do with sessions beyond relay's own words."""
    public_url: str | None = None
    can_read: CanRead = lambda origin, headers: False


NO_OPTIONAL_ENDPOINTS = OptionalEndpoints()
