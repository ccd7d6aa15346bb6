"""The relay protocol: every sentence of its document that binds a hub or a host, what the clients in the field send and expect,
and the faults of the public implementation, each as the promise that ours does not have it."""

from tests.conformance.requirements.requirement import Requirement

OURS = "Our reading of what the document leaves open"
HTTP = "Clients in the field, HTTP surface"
WEBSOCKET = "Clients in the field, WebSocket"
HOST = "Clients in the field, Host daemon"
FAULTS = "Known faults of the public implementation"
NO_PAGE = "This version has no page of its own yet; the address says so in plain text. It comes with the web client."

ENVELOPE = (
    Requirement("relay:ids:any-text", WEBSOCKET, "ids are any text of 1 to 128 characters; UUIDs are not asked for"),
    Requirement("relay:ids:seq-monotonic", "Identifiers", "`seq` only rises within a run"),
    Requirement("relay:envelope:fields", "Event Envelope", "a message has type, ts, host_id, run_id, seq and data"),
    Requirement("relay:envelope:unknown-fields", "Event Envelope", "unknown fields are ignored; a host's are passed on to apps"),
    Requirement(
        "relay:envelope:unknown-types", "Event Envelope", "a type that is not known does no harm, at the hub and at a host"
    ),
    Requirement("relay:envelope:loose", OURS, "an event without a readable time or without its host is taken all the same"),
    Requirement("relay:envelope:hostile", OURS, "what cannot be read is answered with `error`, and the connection goes on"),
)

FRAMES = (
    Requirement("relay:frames:host-limit", OURS, "a frame between a host and its hub has up to 16 MiB, or what is configured"),
    Requirement(
        "relay:frames:events-fit", OURS, "an event that is too long reaches the hub shortened, with its number and sha256"
    ),
    Requirement("relay:frames:forward-fits", OURS, "what is too long for a host is refused to the app that sent it"),
    Requirement("relay:frames:app-limit", OURS, "an app whose frame is too long gets `error`, and its connection stays"),
)

ENDPOINTS = (
    Requirement("relay:endpoints:app", "WebSocket Endpoints", "apps connect to `/ws/app`"),
    Requirement(
        "relay:endpoints:app-token", "WebSocket Endpoints", "with their token in the query; without it 401 and no upgrade"
    ),
    Requirement("relay:endpoints:host", "WebSocket Endpoints", "hosts connect to `/ws/host` with host_id and host_token"),
    Requirement("relay:endpoints:host-refused", WEBSOCKET, "a host that does not show who it is is refused before the upgrade"),
    Requirement("relay:endpoints:close", WEBSOCKET, "a client's close is answered with 1000"),
    Requirement("relay:endpoints:origin", OURS, "pages of other sites are refused"),
    Requirement("relay:endpoints:no-token-in-logs", OURS, "tokens of query strings reach no log"),
    Requirement("relay:tofu:first-use", "WebSocket Endpoints", "the first token that a host comes with is trusted"),
    Requirement("relay:tofu:same-token", "WebSocket Endpoints", "later it must come with the same one"),
    Requirement("relay:tofu:hash-only", "WebSocket Endpoints", "only the token's sha256 is stored"),
    Requirement("relay:tofu:rotation", "WebSocket Endpoints", "deleting the host's record lets it come with a new token"),
)

EVENTS = (
    Requirement("relay:events:started", "run.started", "tool, cwd and command"),
    Requirement("relay:events:ready", WEBSOCKET, "`run.ready` with runner_mode is passed on"),
    Requirement("relay:events:output", "run.output", "stream and text"),
    Requirement("relay:events:awaiting-input", "run.awaiting_input", "reason, perhaps a prompt, perhaps a request_id"),
    Requirement("relay:events:exited", "run.exited", "exit_code"),
    Requirement("relay:events:input", "run.input", "actor, input_id, text_redacted and text_sha256"),
    Requirement("relay:events:permission-requested", "run.permission_requested", "the question, its texts and what it is about"),
    Requirement("relay:events:tool-call", "tool.call", "request_id, tool, actor and args"),
    Requirement("relay:events:tool-result", "tool.result", "with a result when it is ok, with an error when not"),
    Requirement("relay:events:broken-data", OURS, "data that are not what the type promises are counted, and harm nobody"),
    Requirement("relay:ack:form", WEBSOCKET, "`run.ack` is type, ts and data with run_id and last_seq"),
    Requirement("relay:ack:after-commit", "Acknowledgements", "an event is acknowledged when it is stored, and not before"),
    Requirement("relay:ack:only-numbered", "Acknowledgements", "what has no seq is not acknowledged"),
    Requirement("relay:ack:replay", "Acknowledgements", "what is told again is acknowledged again"),
    Requirement("relay:hosts:heartbeat", WEBSOCKET, "`host.heartbeat` without a run is taken without an answer"),
)

COMMANDS = (
    Requirement("relay:commands:send-input", "run.send_input", "goes to the owning host with input_id and text"),
    Requirement("relay:commands:stop", "run.stop", "goes to the owning host; the signal is `term` unless it is `kill`"),
    Requirement("relay:commands:decide", "run.permission.approve / run.permission.deny", "go to the owning host"),
    Requirement("relay:commands:newline-as-it-is", WEBSOCKET, "text is passed on as it is, also with `\\r` for `\\n`"),
    Requirement("relay:commands:malformed", OURS, "a call that lacks a field is refused under its own id"),
    Requirement("relay:commands:refused-by-host", OURS, "what a host does not carry out is answered with `run.error`"),
    Requirement("relay:routing:by-run", WEBSOCKET, "commands and calls on a run go by its run_id"),
    Requirement("relay:routing:by-host", WEBSOCKET, "`rpc.run.start` and `rpc.host.*` go by data.host_id"),
    Requirement("relay:routing:run-id-beside-host-id", WEBSOCKET, "a run_id beside it does not matter"),
    Requirement("relay:delivery:all-until-subscribed", WEBSOCKET, "an app is sent everything until it first subscribes"),
    Requirement("relay:clients:subscribe", WEBSOCKET, "`run.subscribe` adds or replaces, `run.unsubscribe` takes away"),
    Requirement("relay:clients:include-output", WEBSOCKET, "a subscription may leave out the output"),
    Requirement("relay:clients:repaint", OURS, "who subscribes late is shown the terminal as it is, then what follows"),
    Requirement("relay:clients:newer-commands", WEBSOCKET, "`run.send_stdin` and `run.resize`"),
    Requirement("relay:clients:newer-decisions", WEBSOCKET, "approve and deny may carry `decision`, `allow_tools`, `answers`"),
    Requirement("relay:clients:carriage-return", WEBSOCKET, "`\\r` ends a typed line"),
    Requirement("relay:clients:run-ready", WEBSOCKET, "`run.ready` follows `run.started`"),
    Requirement("relay:approvals:first-wins", OURS, "of two decisions the first counts, and the second is told so"),
    Requirement("relay:approvals:provenance", OURS, "`run.permission_decided` says who decided"),
)

HTTP_SURFACE = (
    Requirement("relay:http:health", HTTP, "`GET /health` has name and version, for anybody"),
    Requirement("relay:http:login", "HTTP Endpoints", "`POST /auth/login` gives an access_token"),
    Requirement("relay:http:login-refused", HTTP, "a wrong login is 401 `invalid credentials`"),
    Requirement("relay:http:malformed", OURS, "what cannot be read is 400"),
    Requirement("relay:http:runs", HTTP, "`GET /runs` and `GET /sessions` are rows, newest activity first"),
    Requirement("relay:http:at-most-200", HTTP, "a list has at most 200 rows"),
    Requirement("relay:http:recent", HTTP, "`GET /sessions/recent` has 50, or `limit` clamped to 1..200"),
    Requirement("relay:http:session", HTTP, "`GET /sessions/:id` is a row, or 404"),
    Requirement("relay:http:messages", HTTP, "`GET /runs/:id/messages` and its twin are the run's messages, ascending"),
    Requirement("relay:http:paging", HTTP, "200, or `limit` clamped to 1..500, before `before_id`"),
    Requirement("relay:http:include-output", HTTP, "`include_output=false` leaves out the output"),
    Requirement("relay:http:input", "HTTP Endpoints", "`POST /runs/:run_id/input` forwards `run.send_input` and is 204"),
    Requirement("relay:http:input-actor", HTTP, "its actor is passed on"),
    Requirement("relay:http:input-refused", HTTP, "404 for an unknown run, 502 when its host is offline"),
    Requirement("relay:http:hosts", HTTP, "`GET /hosts` has id, name, last_seen_at and online"),
    Requirement("relay:http:anything-else", HTTP, "any other path is the page's, and asks for no token"),
    Requirement("relay:http:static-page", HTTP, "a page with a fallback for its own paths"),
    Requirement("relay:rows:fields", HTTP, "a row has the fields of RunRow"),
    Requirement("relay:rows:pending", HTTP, "what is asked is in the pending fields"),
    Requirement("relay:messages:fields", HTTP, "a message has the fields of Message; `kind` is the event's type"),
    Requirement("relay:messages:roles", HTTP, "input is the user's, output the assistant's, the rest the system's"),
    Requirement("relay:status:running", HTTP, "a run that is under way"),
    Requirement("relay:status:awaiting-input", HTTP, "one that waits for input, until it got some"),
    Requirement("relay:status:awaiting-approval", HTTP, "one that waits for a decision, until there is one"),
    Requirement("relay:status:by-request-id", WEBSOCKET, "`run.awaiting_input` with a request_id means awaiting approval"),
    Requirement("relay:status:exited", HTTP, "one that has ended, with ended_at and exit_code"),
    Requirement("relay:status:lost", HTTP, "ours: one whose host stays away; it comes back with the host"),
    Requirement("relay:auth:bearer", HTTP, "everything but health, login and the page wants a bearer token"),
    Requirement("relay:auth:jwt", HTTP, "tokens are JWTs by HS256, good for 24 hours"),
    Requirement("relay:auth:argon2", HTTP, "passwords are kept as argon2 hashes"),
    Requirement("relay:auth:one-admin", HTTP, "the environment may name an admin"),
    Requirement("relay:auth:environment", HOST, "JWT_SECRET, ADMIN_USERNAME and ADMIN_PASSWORD_HASH are obeyed"),
    Requirement("relay:auth:environment-checked", OURS, "a secret or hash that cannot be used stops the start of the daemon"),
    Requirement("relay:auth:short-passwords", HOST, "a hash is made of a short password too, with a warning"),
    Requirement("relay:auth:hash-password", HOST, "a command prints a password's hash; ours is `tower user hash`"),
    Requirement(
        "relay:auth:bind-and-database",
        HOST,
        "BIND_ADDR and DATABASE_URL",
        "One daemon serves every protocol: where it listens and keeps things is said once, by its own settings.",
    ),
    Requirement("relay:auth:attempts-limited", OURS, "guessing at passwords is slowed down"),
    Requirement("relay:auth:revocable", OURS, "a token can be taken back"),
)

RPC = (
    Requirement("relay:rpc:request-id", "WS-RPC", "every call has a request_id, which its answer repeats"),
    Requirement("relay:rpc:response", "rpc.response", "request_id, ok, rpc_type, and result or error"),
    Requirement("relay:rpc:errors", HOST, "`unknown rpc type`, `unknown run_id`"),
    Requirement("relay:rpc:path-errors", HOST, "`path must be relative`, `path contains ..`, `path escapes run cwd`"),
    Requirement("relay:rpc:host-leaves", OURS, "a call whose host leaves is answered"),
    Requirement("relay:rpc:fs-read", "rpc.fs.read", "path, content, truncated"),
    Requirement("relay:rpc:fs-search", "rpc.fs.search", "matches with path, line, column, text; truncated"),
    Requirement("relay:rpc:fs-list", "rpc.fs.list", "path, entries with name, is_dir, size_bytes of files only; truncated"),
    Requirement("relay:rpc:fs-write", "rpc.fs.write", "path and bytes_written"),
    Requirement("relay:rpc:bash", "rpc.bash", "`bash -lc` in the run's cwd: stdout, stderr, exit_code, truncated"),
    Requirement("relay:rpc:git-status", "rpc.git.status / rpc.git.diff", "the porcelain with its branch"),
    Requirement("relay:rpc:git-diff", "rpc.git.status / rpc.git.diff", "of everything, or of one path"),
    Requirement("relay:rpc:run-start", "rpc.run.start", "starts a run on the named host"),
    Requirement("relay:rpc:run-start-envelope", "rpc.run.start", "the answer has run_id in the envelope and in the result"),
    Requirement("relay:rpc:run-start-known", OURS, "a run is known to the hub when its start is answered"),
    Requirement("relay:rpc:run-stop", "rpc.run.stop", "answered with the signal, `term` by default"),
    Requirement("relay:rpc:runs-list", "rpc.runs.list", "those under way, with pid and what they wait for"),
    Requirement("relay:rpc:host-info", "rpc.host.info / rpc.host.doctor", "who the host is, and its tools"),
    Requirement("relay:rpc:host-doctor", "rpc.host.info / rpc.host.doctor", "and what it depends on"),
    Requirement("relay:rpc:host-capabilities", "rpc.host.capabilities", "and what it can, and where its things are"),
    Requirement("relay:rpc:logs-tail", "rpc.host.logs.tail", "path, text and truncated"),
    Requirement("relay:limits:fs-read", HOST, "1 MiB"),
    Requirement("relay:limits:fs-search", HOST, "200 matches"),
    Requirement("relay:limits:fs-list", HOST, "500 entries"),
    Requirement("relay:limits:bash", "rpc.bash", "outputs are truncated"),
    Requirement(
        "relay:limits:logs-tail", "rpc.host.logs.tail", "200 lines and 200,000 bytes by default, 2,000 and 2,000,000 at most"
    ),
    Requirement("relay:limits:logs-tail-maximum", "rpc.host.logs.tail", "the maximum passes from our host through our hub"),
    Requirement("relay:gate:order", HOST, "`tool.call`, then `run.permission_requested` with the call's own id; then it is done"),
    Requirement(
        "relay:gate:preview",
        "rpc.fs.write",
        "the question shows what would be written, whole; what is too long to be shown is refused",
    ),
    Requirement("relay:gate:denied", HOST, "a denied call is not done and answered `denied`"),
    Requirement("relay:tools:around", "Tool Events", "a call is told before it is done, and its result after"),
    Requirement("relay:tools:failure", "tool.result", "a failed one has ok false and an error"),
)

HOSTS = (
    Requirement("relay:link:dial", "WebSocket Endpoints", "the host dials `/ws/host` with its id and token"),
    Requirement("relay:link:command", OURS, "`tower host --hub URL`, also as `hostd`"),
    Requirement("relay:link:heartbeat", WEBSOCKET, "it says at an interval that it lives"),
    Requirement("relay:link:reconnect", "Acknowledgements", "it dials again when the connection is lost"),
    Requirement("relay:link:numbers", OURS, "each message names the number before it, so that a hub sees holes"),
    Requirement("relay:link:goodbye", OURS, "a host that is stopped closes with 1001"),
    Requirement("relay:spool:unacked-again", "Acknowledgements", "after a reconnect replay goes on behind the last acknowledged"),
    Requirement("relay:spool:acked-not-again", "Acknowledgements", "what was acknowledged is not told again"),
    Requirement("relay:spool:offline", "Acknowledgements", "what happens while the hub is away is told later"),
    Requirement("relay:spool:survives", "Acknowledgements", "also when the host was killed"),
    Requirement("relay:host:config-file", HOST, "id and token are made once and kept in a file of mode 0600"),
    Requirement(
        "relay:host:environment-wins",
        HOST,
        "HOST_ID, HOST_TOKEN, LOCAL_UNIX_SOCKET, HOSTD_LOG_PATH, REDACTION_EXTRA_REGEX go first",
    ),
    Requirement("relay:host:server-base-url", HOST, "SERVER_BASE_URL names the hub"),
    Requirement("relay:host:spool-db-path", HOST, "SPOOL_DB_PATH", "The journal is the spool: there is no other file to name."),
    Requirement("relay:runs:order", HOST, "started, ready, output, exited"),
    Requirement("relay:runs:seq-from-1", HOST, "`seq` starts at 1 with `run.started`"),
    Requirement("relay:runs:started-fields", "run.started", "the tool, the cwd and the whole command line"),
    Requirement("relay:runs:exit-code", "run.exited", "the program's own"),
    Requirement("relay:runs:coalesced", HOST, "output is put together, up to 16 KiB"),
    Requirement("relay:runs:binary", OURS, "what is no text is survived"),
    Requirement("relay:runs:environment", HOST, "RELAY_RUN_ID, RELAY_TOOL, RELAY_HOSTD_SOCK, RELAY_CWD"),
    Requirement("relay:runs:cwd", "rpc.run.start", "in the cwd that is named, or in the host's own"),
    Requirement("relay:runs:bash-lc", "rpc.run.start", "by `bash -lc`, in a terminal"),
    Requirement("relay:prompts:order", HOST, "`run.permission_requested`, then `run.awaiting_input`"),
    Requirement("relay:prompts:shared-id", HOST, "with the same request_id, which is a UUID"),
    Requirement("relay:prompts:fields", "run.permission_requested", "reason, prompt, approve_text `y\\n`, deny_text `n\\n`"),
    Requirement("relay:prompts:recognised", HOST, "the prompts of the list are recognised"),
    Requirement("relay:prompts:open", WEBSOCKET, "one without yes and no is `run.awaiting_input` without a request_id"),
    Requirement("relay:prompts:press-enter", HOST, "`press enter to continue` is approved by `\\n`"),
    Requirement("relay:prompts:approve", HOST, "approving types approve_text with the request's id as input_id"),
    Requirement("relay:prompts:deny", "run.permission_requested", "denying types deny_text"),
    Requirement("relay:prompts:once", HOST, "two approvals give exactly one `run.input`"),
    Requirement("relay:input:recorded", "run.input", "what was written is told with the sha256 of the raw text"),
    Requirement("relay:input:redacted", "run.input", "and redacted"),
    Requirement("relay:input:once", "Identifiers", "an input_id counts once"),
    Requirement("relay:input:actor", "run.input", "with who typed it"),
    Requirement("relay:stop:term", "run.stop", "`term` is the default, and a program can hear it"),
    Requirement("relay:stop:kill", "run.stop", "`kill` ends it without a word"),
)

LOCAL = (
    Requirement("relay:local:owner-only", OURS, "the socket is its owner's alone"),
    Requirement("relay:local:runs", HOST, "`POST /runs` and `GET /runs`"),
    Requirement("relay:local:input", HOST, "`POST /runs/:id/input`"),
    Requirement("relay:local:stop", HOST, "`POST /runs/:id/stop`"),
    Requirement("relay:local:tools", HOST, "fs/read, fs/search, fs/write, git/status, git/diff and bash under `/runs/:id`"),
    Requirement("relay:local:tool-names", HOST, "tool names have no `rpc.` there, and the actor is `local`"),
    Requirement("relay:local:gated", "Tool Events", "what is gated over the hub is gated there too"),
    Requirement("relay:local:errors", HOST, "with the same error strings"),
    Requirement("relay:local:stdout", HOST, "`GET /runs/:id/stdout` is a stream until the run ends"),
    Requirement("relay:local:stdin", HOST, "`POST /runs/:id/stdin` is typed as it comes"),
    Requirement("relay:local:of-a-run", OURS, "a process of a run may look there, and decides nothing"),
)

AGENTS = (
    Requirement("relay:agents:row", OURS, "an agent's session is a run in every list"),
    Requirement("relay:agents:output", OURS, "what it says is output"),
    Requirement("relay:agents:input", OURS, "what is typed is a message"),
    Requirement("relay:agents:approvals", OURS, "what it asks is a permission request, decided or answered by typing"),
    Requirement("relay:agents:stop", OURS, "stop ends its work"),
    Requirement("relay:agents:calls", OURS, "calls work in its folder; what is gated needs work under way to be asked in"),
    Requirement("relay:agents:linked", OURS, "a host's agents are told to its hub as other runs are"),
    Requirement("relay:together:a-run", OURS, "an app sees no difference between the hub's own host and one that dialled in"),
)

FREE_OF = (
    Requirement("relay:faults:duplicates", FAULTS, "what a host tells again is shown to no app again"),
    Requirement("relay:faults:ack-over-hole", FAULTS, "an acknowledgement never covers what has not arrived"),
    Requirement("relay:faults:old-socket-close", FAULTS, "the end of a host's old socket leaves the new one's route"),
    Requirement("relay:faults:answers-to-all", FAULTS, "an answer goes to who asked"),
    Requirement("relay:faults:answers-stored", FAULTS, "what is stored of it is bounded and redacted"),
    Requirement("relay:faults:undeliverable", FAULTS, "what cannot be delivered is answered with an error at once"),
    Requirement("relay:faults:dead-hosts", FAULTS, "the runs of a host that died do not stay `running`"),
    Requirement("relay:faults:open-registration", FAULTS, "who may register as a host is the owner's choice"),
    Requirement("relay:faults:hosts-stay", FAULTS, "a host can be removed"),
    Requirement("relay:faults:other-hosts-run", OURS, "a host can tell nothing of another host's run"),
    Requirement("relay:faults:input-in-log", FAULTS, "what is typed reaches no log"),
    Requirement("relay:faults:split-prompts", FAULTS, "a prompt is seen in however many pieces it comes"),
    Requirement("relay:faults:coloured-prompts", FAULTS, "and in whatever colours"),
    Requirement("relay:faults:split-utf8", FAULTS, "no character is split"),
    Requirement("relay:faults:search-flags", FAULTS, "a query is never an option of the searcher"),
    Requirement("relay:faults:bash-timeout", FAULTS, "bash has a time after which it ends"),
    Requirement("relay:faults:bash-loses-output", FAULTS, "a bash that fails is answered with what it put out"),
    Requirement("relay:faults:orphans", FAULTS, "stop ends all that a run started"),
    Requirement("relay:faults:exited-too-early", FAULTS, "`run.exited` comes after the last output"),
    Requirement("relay:faults:greedy-redaction", FAULTS, "UUIDs and paths are not taken for secrets"),
    Requirement("relay:faults:lagging-apps", FAULTS, "an app that reads slowly misses nothing"),
    Requirement("relay:faults:page-reconnects", FAULTS, "the page connects again by itself", NO_PAGE),
    Requirement("relay:faults:page-injection", FAULTS, "no output becomes HTML in the page", NO_PAGE),
)

REQUIREMENTS = (*ENVELOPE, *FRAMES, *ENDPOINTS, *EVENTS, *COMMANDS, *HTTP_SURFACE, *RPC, *HOSTS, *LOCAL, *AGENTS, *FREE_OF)
