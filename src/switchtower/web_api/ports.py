"""The ports of the endpoints: the hub, the accounts, and the conversion of refusals. The endpoints know these and not the modules
behind them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from switchtower.core import events, roles
from switchtower.core.ports import journal, registry, session_service
from switchtower.protocols.relay import messages
from switchtower.transports.stream import ConnectionOrigin
from switchtower.web_api.endpoints import pages
from switchtower.web_api.responses import HttpError

FindRun = Callable[[ConnectionOrigin], str | None]
"""Returns the run, by the core's id, whose process is at the other end; None for a process of no run. Raises
`ProcessUnattributed`."""
ConvertFailure = Callable[[Exception], HttpError | None]
"""Converts a refusal of the accounts to an HTTP error; returns None for any other exception."""
CanRead = Callable[[ConnectionOrigin, Mapping[str, str]], bool]
"""Returns whether a client without a token may read the metrics, from its address and its headers."""
LOGIN_SECONDS = 86_400
"""The lifetime of a login and its cookie."""


class HubPort(Protocol):
    async def list_runs(self, limit: int) -> list[messages.RunRow]: ...

    async def find_run(self, run_id: str) -> messages.RunRow | None: ...

    async def read_history(
        self, run_id: str, *, limit: int, before_id: int | None, include_output: bool
    ) -> list[messages.Message] | None: ...

    async def read_screen(self, run_id: str) -> dict[str, Any] | None:
        """Returns the screen for a new subscriber. None: the run does not exist, or has no terminal."""
        ...

    async def send_input(self, run_id: str, request: messages.SendInput, actor: events.Actor) -> None:
        """Raises `errors.RelayError`."""
        ...

    async def list_hosts(self) -> list[messages.HostRow]: ...

    async def set_host_state(self, host_id: str, state: str, by: events.Actor | None = None) -> bool:
        """Returns False, like the next three, when the host does not exist."""
        ...

    async def rename_host(self, host_id: str, name: str, by: events.Actor | None = None) -> bool: ...

    async def remove_host(self, host_id: str, by: events.Actor | None = None) -> bool: ...

    async def rotate_host(self, host_id: str, by: events.Actor | None = None) -> bool: ...


class IdentityPort(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def token_id(self) -> str | None:
        """None for the owner's token, which cannot be revoked."""
        ...

    @property
    def expires_at_ms(self) -> int | None: ...

    @property
    def role(self) -> roles.Role: ...

    def describe_device(self, user_agent: str) -> str: ...


class AccountsPort(Protocol):
    """Its refusals are exceptions that a `ConvertFailure` knows."""

    async def login(self, username: str, password: str, address: str, *, client: str = "", device: str = "") -> str: ...

    def make_device_token(self, name: str) -> str:
        """Makes a token for a client that has logged in, which sends it as `device` the next time."""
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
    """Tokens that log their bearer in once."""

    def issue(self) -> tuple[str, int]:
        """Returns a new token, and its end in milliseconds."""
        ...


class MonitorPort(Protocol):
    """The health and the metrics of the daemon."""

    def list_unready_reasons(self) -> list[str]: ...

    async def format_prometheus(self) -> str:
        """Formats the metrics in Prometheus' format."""
        ...

    async def collect_figures(self) -> dict[str, Any]: ...


class PushSubscriptionsPort(Protocol):
    """Browsers that subscribed to notifications. Its refusals are exceptions that the `ConvertFailure` knows."""

    async def get_public_key(self) -> str: ...

    async def subscribe(self, user: str, endpoint: str, p256dh: str, auth: str) -> None: ...

    async def unsubscribe(self, user: str, endpoint: str) -> bool: ...


class OptionalEndpoints(Struct, frozen=True, kw_only=True):
    """The endpoints of the port beyond relay's own; each may be missing."""

    page: pages.PageFiles | None = None
    """The page, which is served at all paths that are not endpoints."""
    monitor: MonitorPort | None = None
    decisions: journal.Audit | None = None
    pushes: PushSubscriptionsPort | None = None
    sessions: session_service.SessionService | None = None
    """The service for the actions of apps on sessions beyond relay's own."""
    public_url: str | None = None
    can_read: CanRead = lambda origin, headers: False


NO_OPTIONAL_ENDPOINTS = OptionalEndpoints()
