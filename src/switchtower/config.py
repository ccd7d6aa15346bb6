"""Every setting, declared once: its key in the configuration file, its `TOWER_*` variable, its flag and its default.

This module reads the environment and one file; it creates nothing and opens no socket. A flag takes precedence over the
environment, the environment over the file, the file over the default."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType

from switchtower.settings import parsers
from switchtower.settings.parsers import Setting, _parse_value, declare_setting, find_value, format_setting_value, is_inherited
from switchtower.settings.sources import TABLES, ConfigError, Folders, Sources, read_config_file
from switchtower.settings.sources import locate as locate

LOG_LEVELS = ("debug", "info", "warning", "error")
POLICIES = ("read-only", "ask", "auto", "yolo")
SANDBOXES = ("local", "bubblewrap", "modal")
SANDBOX_SETTINGS = ("auto", *SANDBOXES)
NEW_HOSTS = ("local", "trust", "ask", "refuse")
HUB_MAY = ("watch", "decide", "start")
NOTIFY_FORMATS = ("json", "ntfy")
NOTIFY_EVENTS = ("decision", "finished", "failed")


LIVE = (
    "provider",
    "model",
    "policy",
    "sandbox",
    "trusted_folders",
    "pass_env",
    "max_turns",
    "max_tokens",
    "max_cost",
    "max_minutes",
    "compact_at",
    "demo_delay_ms",
    *TABLES,
)
"""The settings that a running daemon takes from a changed file without a restart, for sessions and runs that start from then
on.
"""


_DERIVED = Path()
"""A placeholder for a path that is derived from the folders."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    home: Path | None = declare_setting(  # noqa: RUF009
        None, parsers.parse_path, "DIR", "Keep everything (configuration, data, socket, log) in this one folder", in_file=False
    )
    socket: Path = declare_setting(  # noqa: RUF009
        _DERIVED, parsers.parse_socket_path, "PATH", "The Unix socket of the push protocol", also={"PUSHD_SOCKET": None}
    )
    http: str = declare_setting(
        "127.0.0.1:8787", parsers.parse_listen, "HOST:PORT", "HTTP and WebSockets; port 0 picks a free one, `off` disables"
    )
    pi: str = declare_setting(
        "127.0.0.1:3141",
        parsers.parse_listen,
        "HOST:PORT",
        "The pi protocol's own port; port 0 picks a free one, `off` disables",
        also={"PI_SERVER_PORT": parsers.parse_loopback_port},
    )
    store: str | None = declare_setting(
        None,
        parsers.parse_store_url,
        "URL",
        "A PostgreSQL that several nodes share, `postgresql://…`, in place of the SQLite journal",
    )
    node_listen: str = declare_setting(
        "127.0.0.1:0", parsers.parse_listen_address, "HOST:PORT", "Where other nodes reach this one; port 0 picks a free one"
    )
    node_address: str | None = declare_setting(
        None,
        parsers.parse_listen_address,
        "HOST:PORT",
        "The address that other nodes are told, where it is not the one we listen at",
    )
    node_name: str | None = declare_setting(
        None, parsers.parse_text, "NAME", "What this node is called in lists; the machine's name otherwise"
    )
    node_lease: float = declare_setting(
        6.0, parsers.make_number_parser(1.0), "SECONDS", "How long a node may be silent before others take its sessions over"
    )
    max_line_bytes: int = declare_setting(
        1_048_576, parsers.make_integer_parser(1024), "BYTES", "The longest frame a client may send"
    )
    output_limit_bytes: int = declare_setting(
        1_048_576,
        parsers.make_integer_parser(1024),
        "BYTES",
        "How much output may wait for one connection before it is paged from the journal",
    )
    retention_entries: int = declare_setting(
        100_000, parsers.make_integer_parser(0), "COUNT", "How many of a session's token deltas are kept; 0 keeps all"
    )
    retention_days: float = declare_setting(
        30.0, parsers.make_number_parser(0), "DAYS", "How long token deltas are kept; 0 keeps them for ever"
    )
    receipt_ttl_hours: float = declare_setting(
        168.0,
        parsers.make_number_parser(0.001),
        "HOURS",
        "How long a repeated request is recognised and answered as the first time",
    )
    approval_timeout: float = declare_setting(
        86_400.0, parsers.make_number_parser(0.001), "SECONDS", "How long an approval waits before it expires"
    )
    attach_token_required: bool = declare_setting(
        False, parsers.parse_switch, "", "Ask for a session's attach token on the owner's socket too"
    )
    demo_delay_ms: float = declare_setting(15.0, parsers.make_number_parser(0), "MS", "The demo model's pause between words")
    provider: str = declare_setting(
        "auto",
        parsers.parse_text,
        "NAME",
        "The model or provider of sessions that name none; `auto` takes the first usable one",
    )
    model: str | None = declare_setting(None, parsers.parse_text, "NAME", "The provider's model for sessions that name none")
    policy: str = declare_setting(
        "ask", parsers.OneOfParser(*POLICIES), "PROFILE", f"What sessions may do unasked: {', '.join(POLICIES)}"
    )
    sandbox: str = declare_setting(
        "auto",
        parsers.OneOfParser(*SANDBOX_SETTINGS),
        "NAME",
        f"Where commands run: {', '.join(SANDBOX_SETTINGS)}. A session gets this or more; "
        "`auto` is `bubblewrap` for agents where it works",
    )
    sandbox_network: bool = declare_setting(False, parsers.parse_switch, "", "Let commands in a sandbox use the network")
    trusted_folders: tuple[str, ...] = declare_setting(
        (),
        parsers.parse_names,
        "PATHS",
        "Folders whose instructions count without a question, with commas between; `*` is any name, and folders below count too",
    )
    pass_env: tuple[str, ...] = declare_setting(
        (),
        parsers.parse_names,
        "NAMES",
        "Variables that commands may see although their names look like secrets, with commas between",
    )
    max_turns: int = declare_setting(
        200, parsers.make_integer_parser(0), "COUNT", "How often one run may call the model; 0 is no limit"
    )
    max_tokens: int = declare_setting(
        0, parsers.make_integer_parser(0), "COUNT", "How many tokens one run may take, in and out; 0 is no limit"
    )
    max_cost: float = declare_setting(
        0.0,
        parsers.make_number_parser(0),
        "USD",
        "How much one run may cost; models without a known price are refused; 0 is no limit",
    )
    max_minutes: float = declare_setting(
        0.0, parsers.make_number_parser(0), "MINUTES", "How long one run may call the model; 0 is no limit"
    )
    compact_at: float = declare_setting(
        0.8,
        parsers.make_number_parser(0),
        "PART",
        "The part of the context window from which on a conversation is summarised; 0 never does",
    )
    log_level: str = declare_setting(
        "info", parsers.OneOfParser(*LOG_LEVELS), "LEVEL", f"How much is logged: {', '.join(LOG_LEVELS)}"
    )
    shutdown_timeout: float = declare_setting(
        5.0, parsers.make_number_parser(0), "SECONDS", "How long running work may take to end when the daemon stops"
    )
    pi_max_sessions: int = declare_setting(
        100, parsers.make_integer_parser(1), "COUNT", "pi: how many sessions may be loaded at a time"
    )
    pi_max_connections: int = declare_setting(
        1_000, parsers.make_integer_parser(1), "COUNT", "pi: how many clients may be connected at a time"
    )
    pi_max_frame_bytes: int = declare_setting(
        10_485_760, parsers.make_integer_parser(1024), "BYTES", "pi: the longest frame a client may send"
    )
    pi_session_rate: int = declare_setting(
        100,
        parsers.make_integer_parser(0),
        "COUNT",
        "pi: commands a minute that one client may send to one session; 0 is no limit",
    )
    pi_client_rate: int = declare_setting(
        1_000, parsers.make_integer_parser(0), "COUNT", "pi: commands a minute that one client may send; 0 is no limit"
    )
    pi_read_timeout: float = declare_setting(
        30.0, parsers.make_number_parser(0.001), "SECONDS", "pi: how long a command that only reads may take"
    )
    pi_command_timeout: float = declare_setting(
        300.0, parsers.make_number_parser(0.001), "SECONDS", "pi: how long any other command may take, without its run"
    )
    pi_dependency_timeout: float = declare_setting(
        30.0, parsers.make_number_parser(0.001), "SECONDS", "pi: how long a command waits for those it depends on"
    )
    pi_idempotency_minutes: float = declare_setting(
        10.0, parsers.make_number_parser(0.001), "MINUTES", "pi: how long an idempotency key is recognised"
    )
    pi_ui_timeout: float = declare_setting(
        60.0, parsers.make_number_parser(0.001), "SECONDS", "pi: how long a question to the user waits for its answer"
    )
    minicodex_heartbeat: float = declare_setting(
        15.0, parsers.make_number_parser(0), "SECONDS", "MiniCodex: how often a client hears that we live; 0 never says so"
    )
    minicodex_replay: int = declare_setting(
        10_000, parsers.make_integer_parser(1), "COUNT", "MiniCodex: how many entries are replayed to a client that comes back"
    )
    host_socket: Path = declare_setting(  # noqa: RUF009
        _DERIVED, parsers.parse_socket_path, "PATH", "The Unix socket of the host's own HTTP", also={"LOCAL_UNIX_SOCKET": None}
    )
    hub: str | None = declare_setting(
        None, parsers.parse_hub_url, "URL", "The hub that this daemon dials as a host, such as `https://hub.example`"
    )
    insecure_hub: bool = declare_setting(
        False,
        parsers.parse_switch,
        "",
        "Dial a hub on another machine without TLS: all between here and there read and change everything",
    )
    hub_may: str = declare_setting(
        "decide",
        parsers.OneOfParser(*HUB_MAY),
        "WHAT",
        "What the hub may do on this host: `watch`, also `decide`, type and stop, or also `start` programs and write files",
    )
    host_name: str | None = declare_setting(None, parsers.parse_text, "NAME", "What this machine is called in lists of hosts")
    host_id: str | None = declare_setting(
        None, parsers.parse_text, "ID", "Who this machine is to hubs; made once when nobody chooses", also={"HOST_ID": None}
    )
    new_hosts: str = declare_setting(
        "local",
        parsers.OneOfParser(*NEW_HOSTS),
        "WHO",
        "Hosts that come for the first time: `trust` all, those of this machine (`local`), `ask` for each, or `refuse` all",
    )
    host_max_sessions: int = declare_setting(
        2_000, parsers.make_integer_parser(0), "COUNT", "Sessions that one host may have here; 0 is no limit"
    )
    host_max_approvals: int = declare_setting(
        200,
        parsers.make_integer_parser(0),
        "COUNT",
        "Questions of one host that may wait for a decision here at a time; 0 is no limit",
    )
    host_messages_per_minute: int = declare_setting(
        200_000, parsers.make_integer_parser(0), "COUNT", "Messages of one host that are taken in a minute; 0 is no limit"
    )
    host_bytes_per_minute: int = declare_setting(
        67_108_864, parsers.make_integer_parser(0), "BYTES", "How much of one host is taken in a minute; 0 is no limit"
    )
    host_max_frame_bytes: int = declare_setting(
        16_777_216,
        parsers.make_integer_parser(65_536),
        "BYTES",
        "The longest frame between a host and its hub, in both directions",
    )
    lost_after: float = declare_setting(
        60.0, parsers.make_number_parser(0.001), "SECONDS", "How long a host may be away before its runs count as lost"
    )
    heartbeat: float = declare_setting(
        10.0, parsers.make_number_parser(0.001), "SECONDS", "How often a host tells its hub that it lives"
    )
    origins: tuple[str, ...] = declare_setting(
        (),
        parsers.parse_origins,
        "NAMES",
        "Names that this daemon may be reached by, such as `hub.example`, and pages that may use it, such as `https://app.example:8443`",
    )
    trusted_proxies: tuple[str, ...] = declare_setting(
        (), parsers.parse_networks, "NETWORKS", "Proxies whose `X-Forwarded-For` or `Forwarded` is believed, such as `127.0.0.1`"
    )
    max_connections: int = declare_setting(
        0,
        parsers.make_integer_parser(0),
        "COUNT",
        "TCP connections to all ports at a time; 0 is as many as the descriptors allow",
    )
    max_connections_per_address: int = declare_setting(
        100,
        parsers.make_integer_parser(1),
        "COUNT",
        "TCP connections without a token from one address of another machine at a time",
    )
    public_url: str | None = declare_setting(
        None,
        parsers.parse_public_url,
        "URL",
        "Where people reach the page, such as `https://tower.example`: for links and proxies",
    )
    tls_cert: Path | None = declare_setting(  # noqa: RUF009
        None, parsers.parse_path, "FILE", "The certificate, with its chain, of the HTTP port (PEM): it then speaks TLS alone"
    )
    tls_key: Path | None = declare_setting(None, parsers.parse_path, "FILE", "The private key of `tls_cert` (PEM)")  # noqa: RUF009
    web_dir: Path | None = declare_setting(  # noqa: RUF009
        None, parsers.parse_path, "DIR", "The page's files, where they are not those that we came with"
    )
    metrics_public: bool = declare_setting(False, parsers.parse_switch, "", "Show `/metrics` to everybody who reaches the port")
    notify_webhook: tuple[str, ...] = declare_setting(
        (), parsers.parse_urls, "URLS", "Addresses that are told of decisions and runs that end, with commas between"
    )
    notify_format: str = declare_setting(
        "json", parsers.OneOfParser(*NOTIFY_FORMATS), "FORMAT", f"How they are told: {', '.join(NOTIFY_FORMATS)}"
    )
    notify_events: tuple[str, ...] = declare_setting(
        NOTIFY_EVENTS,
        parsers.SomeOfParser(*NOTIFY_EVENTS),
        "EVENTS",
        f"What is told, with commas between: {', '.join(NOTIFY_EVENTS)}",
    )
    web_push: bool = declare_setting(False, parsers.parse_switch, "", "Let browsers subscribe to notifications (Web Push)")
    web_push_contact: str | None = declare_setting(
        None, parsers.parse_text, "ADDRESS", "Whom a push service may turn to, such as `mailto:me@example.org`"
    )
    telemetry_otlp_endpoint: str | None = declare_setting(
        None, parsers.parse_url, "URL", "Where traces go (OTLP over HTTP), such as `http://127.0.0.1:4318`"
    )
    redaction_extra: str | None = declare_setting(
        None, parsers.parse_regex, "REGEX", "What to hide besides known secrets", also={"REDACTION_EXTRA_REGEX": None}
    )
    models: Mapping[str, object] = field(default_factory=dict, repr=False)
    """The file's `[models.NAME]` tables, not parsed."""
    rules: Sequence[object] = field(default=(), repr=False)
    """The file's `[[rules]]`, not parsed."""
    folders: Folders = field(default=Folders(_DERIVED, _DERIVED, _DERIVED, _DERIVED), repr=False)
    """The folders of all files. They follow from `home`, or from the user's XDG folders without one; not a setting itself."""
    asked: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    """The names of the settings that the user chose, as far as loading could determine; the others have their defaults."""
    file_state: str = field(default="", repr=False, compare=False)
    """A value that differs between two files that differ in settings which only a restart applies. Empty without such
    settings.
    """
    sources: "Sources | None" = field(default=None, repr=False, compare=False)
    """The flags and variables that these were loaded from; None when they were not loaded."""

    def __post_init__(self) -> None:
        if self.folders.run == _DERIVED:
            object.__setattr__(self, "folders", locate(self.home, os.environ))
        if self.socket == _DERIVED:
            object.__setattr__(self, "socket", self.default_socket)
        if self.host_socket == _DERIVED:
            object.__setattr__(self, "host_socket", self.default_host_socket)

    def reload(self) -> "Settings":
        """Reads the file again, with the same flags and variables. Raises `ConfigError`."""
        return self if self.sources is None else load(self.sources.flags, self.sources.environ)

    @property
    def options(self) -> dict[str, str]:
        """The flags that these were loaded with, as texts that parse to the same values."""
        flags = {} if self.sources is None else self.sources.flags
        return {name: format_setting_value(value) for name, value in flags.items() if value is not None and name in _BY_NAME}

    @property
    def default_socket(self) -> Path:
        return self.run_dir / "pushd.sock"

    @property
    def default_host_socket(self) -> Path:
        """The path in the run folder; when that is too long for a socket, a path beside push's."""
        usual = self.run_dir / "hostd.sock"
        return usual if parsers.is_valid_socket_path(usual) else self.socket.with_name(f"{self.socket.name}.host")

    @property
    def registry_path(self) -> Path:
        """The database of users, tokens and hosts."""
        return self.data_dir / "registry.db"

    @property
    def host_file(self) -> Path:
        """The file with this machine's identity for hubs, and its token."""
        return self.data_dir / "host.json"

    @property
    def prompts_file(self) -> Path:
        """The user's own rules for prompts of programs in terminals."""
        return self.folders.config / "prompts.toml"

    @property
    def pi_socket(self) -> Path:
        """The Unix socket of the pi protocol, in the run folder; when that path is too long, beside push's."""
        usual = self.run_dir / "pi.sock"
        return usual if parsers.is_valid_socket_path(usual) else self.socket.with_name(f"{self.socket.name}.pi")

    @property
    def config_file(self) -> Path:
        return self.folders.config / "config.toml"

    @property
    def mcp_file(self) -> Path:
        """The user's own MCP servers."""
        return self.folders.config / "mcp.json"

    @property
    def checkpoints_dir(self) -> Path:
        return self.data_dir / "checkpoints"

    @property
    def worktrees_dir(self) -> Path:
        return self.data_dir / "worktrees"

    @property
    def data_dir(self) -> Path:
        return self.folders.data

    @property
    def journal_path(self) -> Path:
        return self.data_dir / "journal.db"

    @property
    def run_dir(self) -> Path:
        return self.folders.run

    @property
    def endpoints_path(self) -> Path:
        return self.run_dir / "endpoints.json"

    @property
    def pid_path(self) -> Path:
        return self.run_dir / "pushd.pid"

    @property
    def lock_path(self) -> Path:
        return self.run_dir / "tower.lock"

    @property
    def log_path(self) -> Path:
        return self.folders.logs / "tower.log"


SETTINGS: tuple[Setting, ...] = tuple(
    Setting(
        name=declared.name,
        parse=declared.metadata["parse"],
        default=None if declared.default == _DERIVED else declared.default,
        metavar=declared.metadata["metavar"],
        help=declared.metadata["help"],
        variables=("TOWER_" + declared.name.upper(), *declared.metadata["also"]),
        spellings={name: parse for name, parse in declared.metadata["also"].items() if parse is not None},
        in_file=declared.metadata["in_file"],
    )
    for declared in fields(Settings)
    if declared.metadata
)


def load(flags: Mapping[str, object] = MappingProxyType({}), environ: Mapping[str, str] = os.environ) -> Settings:
    """Returns the effective settings. A flag that is None, or a variable that is empty, counts as not given."""
    home = find_value(SETTINGS[0], flags, environ, {}, "")
    folders = locate(home, environ)
    config_file = folders.config / "config.toml"
    in_file = read_config_file(config_file, [setting.name for setting in SETTINGS if setting.in_file])
    found = {setting.name: find_value(setting, flags, environ, in_file, f"`{config_file}`") for setting in SETTINGS[1:]}
    given = {name: value for name, value in found.items() if value is not None}
    asked = frozenset(name for name, value in given.items() if not is_inherited(_BY_NAME[name], value, flags, environ))
    if "socket" not in given:
        given["socket"] = _parse_value(_BY_NAME["socket"], folders.run / "pushd.sock", f"the default in `{folders.run}`")
    for table, kind in (("models", dict), ("rules", list)):
        if table in in_file:
            if not isinstance(in_file[table], kind):
                spelled = "[models.NAME]" if table == "models" else "[[rules]]"
                raise ConfigError(table, f"`{config_file}`", "is a single value", hint=f"write it as `{spelled}`")
            given[table] = in_file[table]
    sources = Sources(dict(flags), {name: value for name, value in environ.items() if _is_ours(name)})
    return Settings(home=home, folders=folders, asked=asked, file_state=_file_state(in_file), sources=sources, **given)


_OURS = frozenset(name for setting in SETTINGS for name in setting.variables) | {"HOME"}


def _is_ours(variable: str) -> bool:
    return variable in _OURS or variable.startswith("XDG_")


def _file_state(in_file: Mapping[str, object]) -> str:
    kept = sorted((name, repr(value)) for name, value in in_file.items() if name not in LIVE)
    if not kept:
        return ""
    import hashlib

    return hashlib.sha256(repr(kept).encode()).hexdigest()


_BY_NAME = {setting.name: setting for setting in SETTINGS}
assert SETTINGS[0].name == "home", "the home decides where the file is, so it is known before the rest"
