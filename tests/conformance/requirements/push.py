"""The Push runtime protocol: every sentence of its document that demands something, and what its clients rely on."""

from tests.conformance.requirements.requirement import Requirement

FIELD = "Clients in the field"

VERSIONING = (
    Requirement("push:version:every-message", "Protocol Versioning", "every message that the daemon sends carries `v`"),
    Requirement(
        "push:version:unknown-events-ignored", "Protocol Versioning", "a client passes over events of a type it does not know"
    ),
    Requirement(
        "push:version:unknown-request-type", "Protocol Versioning", "a request of an unknown type is refused with its own code"
    ),
    Requirement(
        "push:version:changes-are-seen",
        "Protocol Versioning",
        "no change of the messages goes unnoticed: the schemas are compared",
    ),
)

TRANSPORT = (
    Requirement("push:transport:unix-socket", "Transport", "a Unix socket, by default at `~/.push/run/pushd.sock`"),
    Requirement(
        "push:transport:named-pipe",
        "Transport",
        "on Windows a named pipe",
        divergence="Windows is not served: processes, sockets and locks are POSIX's",
    ),
    Requirement("push:transport:websocket", "Transport", "a WebSocket at `/ws/push`, on loopback"),
    Requirement(
        "push:transport:websocket-same-envelopes", "Transport", "both transports carry the same envelopes, byte for byte"
    ),
    Requirement(
        "push:transport:framing", "Transport", "one JSON object a line in UTF-8; anything else gets an answer and no more"
    ),
    Requirement("push:transport:utf8-split", FIELD, "a character whose bytes arrive apart is whole again"),
    Requirement("push:transport:line-limit", FIELD, "a line beyond the limit is refused without being held in memory"),
    Requirement("push:transport:backpressure", FIELD, "a client that floods or never reads costs a bounded amount of memory"),
    Requirement("push:transport:disconnects", FIELD, "a client that vanishes, at whatever byte, harms nobody and ends no run"),
    Requirement("push:transport:environment", FIELD, "`PUSHD_SOCKET` names another socket; the pid stands in `pushd.pid`"),
)

ENVELOPES = (
    Requirement("push:envelope:kinds", "Envelope Types", "a message is a request, a response or an event"),
    Requirement("push:envelope:request-fields", FIELD, "a request has `v`, `kind`, `requestId`, `type` and `payload`"),
    Requirement("push:envelope:session-required", FIELD, "attach, resume, send, submit and cancel name one session"),
    Requirement("push:envelope:null-session-accepted", FIELD, "`sessionId: null` is as good as none"),
    Requirement("push:envelope:unknown-fields-accepted", FIELD, "fields that a client adds are ignored"),
    Requirement("push:envelope:closed-when-sent", FIELD, "what the daemon sends has no field that the schema does not name"),
    Requirement("push:envelope:response-echoes", "Response Envelope", "a response carries its request's id and type"),
    Requirement("push:envelope:response-payload-or-error", FIELD, "a response has a payload when ok and an error when not"),
    Requirement("push:envelope:refusal-payload", "Response Envelope", "a refusal has the empty object for a payload"),
    Requirement(
        "push:envelope:request-id-echoed", "Response Envelope", "an id of up to 256 characters is repeated, whatever it is"
    ),
    Requirement("push:envelope:response-session-string", FIELD, "a response's `sessionId` is a string or absent"),
    Requirement(
        "push:envelope:event-fields", FIELD, "an event has `seq` ≥ 1, `ts` in whole milliseconds, and its run where it has one"
    ),
    Requirement("push:event:seq-monotonic", "Event Envelope", "`seq` grows by one per session; token deltas have their own"),
    Requirement("push:event:clients-dedupe", "Event Envelope", "a client takes each (session, seq) once"),
    Requirement("push:ids:pattern", FIELD, "ids are a kind's prefix and letters, digits or `._:-`; anything else is refused"),
    Requirement("push:text:unicode", "Transport", "text comes back as it was sent"),
    Requirement("push:error:shape", "ProtocolError", "an error has a code of the document, a message and `retryable`"),
)

REQUESTS = (
    Requirement(
        "push:hello:answer", "hello", "answers with the runtime's name and version, the protocol's version and capabilities"
    ),
    Requirement("push:ping:answer", "ping", "answers with `pong` and the daemon's clock"),
    Requirement("push:start:answer", "start_session", "answers with a new session's id, `idle`, and its attach token"),
    Requirement("push:start:required-fields", FIELD, "needs mode, provider and the repo's path; takes remote URL and metadata"),
    Requirement("push:lean:hello", FIELD, "`hello {}` is answered like any other"),
    Requirement(
        "push:lean:start",
        FIELD,
        "`start_session` with `mode: tui`, without sandbox and branches, starts an interactive session",
    ),
    Requirement("push:lean:send", FIELD, "a message without `clientMessageId` starts a run and is never a duplicate"),
    Requirement("push:lean:submit", FIELD, "an approval without `runId` is decided: it belongs to one run"),
    Requirement(
        "push:client:accepts-what-is-allowed",
        FIELD,
        "our client reads what the document allows: ids and words of any shape, absent optional fields, unknown fields and types",
    ),
    Requirement("push:client:odd-rows", FIELD, "our client leaves out a row of a list that it cannot read, and shows the others"),
    Requirement("push:client:branches", FIELD, "our client sends no empty branch; it leaves an unknown one out"),
    Requirement("push:start:provider", "start_session", "a provider that is not configured is refused before a session exists"),
    Requirement(
        "push:start:providers-seen",
        FIELD,
        "ollama, mistral, zai, minimax and openrouter are providers that clients name",
    ),
    Requirement(
        "push:start:sandbox", "start_session", "a sandbox or workspace that cannot be had is refused before a session exists"
    ),
    Requirement("push:list:resumable-sessions", "list_sessions", "lists sessions with state, time and repo, the latest first"),
    Requirement("push:list:limit", FIELD, "`limit` is 1 to 200"),
    Requirement("push:attach:replays-missed", "attach_session", "attaches and replays what was missed, then goes on live"),
    Requirement("push:attach:nothing-to-replay", FIELD, "nothing to replay is `fromSeq = toSeq + 1`"),
    Requirement(
        "push:attach:gap-sends-snapshot", "attach_session", "a cursor that cannot be served gets `gap: true` and a snapshot"
    ),
    Requirement("push:resume:attach-with-summary", "resume_session", "answers as attach does; its caller alone gets a snapshot"),
    Requirement("push:send:starts-run", "send_user_message", "starts a run and answers with its id"),
    Requirement("push:send:non-empty", FIELD, "text is not empty"),
    Requirement(
        "push:send:idempotent", "send_user_message", "one `clientMessageId` makes one run in a session, also after a restart"
    ),
    Requirement("push:send:identity-conflict", "send_user_message", "one `clientMessageId` with another content is refused"),
    Requirement("push:submit:resumes-run", "submit_approval", "answers a pause; the run goes on"),
    Requirement("push:cancel:stops-run", "cancel_run", "stops the active run at whatever it is"),
    Requirement("push:cancel:leaves-nothing", "cancel_run", "no process of a cancelled run is left"),
    Requirement("push:delete:announced", FIELD, "who watches a session that is deleted gets `warning` `SESSION_DELETED`"),
    Requirement("push:session:states", "SessionState", "a session's state is one of six and follows its runs"),
)

EVENTS = (
    Requirement("push:event:catalogue", "Event Catalog", "every event of the catalogue is sent, and no other"),
    Requirement("push:event:session_started", "session_started", "sent when a session is created"),
    Requirement("push:event:session_snapshot", "session_snapshot", "sent on a gap or when a summary is asked for"),
    Requirement("push:event:status", "status", "tells what a run is busy with"),
    Requirement("push:event:thinking_token", "thinking_token", "a piece of the model's thinking"),
    Requirement("push:event:assistant_token", "assistant_token", "a piece of the model's answer"),
    Requirement("push:event:assistant_done", "assistant_done", "ends a message of the model"),
    Requirement("push:event:tool_call", "tool_call", "a tool is called, with its arguments"),
    Requirement("push:event:tool_result", "tool_result", "what came of it, with all six fields"),
    Requirement("push:event:approval_required", "approval_required", "a run pauses for a decision, with all seven fields"),
    Requirement("push:event:approval_received", "approval_received", "the decision and where it came from"),
    Requirement("push:event:warning", "warning", "tells of a gap, among others"),
    Requirement("push:event:error", "error", "tells why a run failed"),
    Requirement(
        "push:event:error-workspace",
        "error",
        "a run whose workspace was removed fails with `SANDBOX_UNAVAILABLE`, before the model is called and in the middle",
    ),
    Requirement("push:event:run_complete", "run_complete", "ends a run with outcome, summary, acceptance and exit code hint"),
    Requirement("push:tools:names", FIELD, "tools have the names that clients render"),
    Requirement("push:tools:structured-errors", FIELD, "a failed tool carries one of the known error types"),
    Requirement("push:tools:scope", FIELD, "tools do not leave the workspace"),
)

CODES = tuple(
    Requirement(f"push:error:{code}", "Error Codes (Protocol Layer)", behaviour)
    for code, behaviour in {
        "UNSUPPORTED_PROTOCOL_VERSION": "another version is refused before anything else is judged",
        "UNSUPPORTED_REQUEST_TYPE": "a request type that nobody knows",
        "INVALID_REQUEST": "whatever is no valid request, however it is broken",
        "SESSION_NOT_FOUND": "a session that does not exist",
        "ATTACH_FORBIDDEN": "a token that is wrong, or missing where one is asked for",
        "RUN_IN_PROGRESS": "a message while a run is active",
        "NO_ACTIVE_RUN": "a cancel without that run being active",
        "APPROVAL_NOT_FOUND": "an approval that was never pending in this session",
        "APPROVAL_EXPIRED": "an approval that is decided, withdrawn or past its expiry",
        "PROVIDER_NOT_CONFIGURED": "a provider that the daemon does not have",
        "SANDBOX_UNAVAILABLE": "a sandbox or a workspace that cannot be had",
        "INTERNAL_ERROR": "our own trouble: no detail for a bug, retryable when it passes",
    }.items()
)

REPLAY = (
    Requirement(
        "push:replay:retention", "Replay and Reconnect Semantics", "how much is kept is a setting; decisions always stay"
    ),
    Requirement(
        "push:replay:seq-greater-than-last-seen", "Replay and Reconnect Semantics", "replays what comes after `lastSeenSeq`"
    ),
    Requirement(
        "push:replay:gap-warning", "Replay and Reconnect Semantics", "a gap is told as `EVENT_GAP`, then a snapshot, in order"
    ),
    Requirement(
        "push:replay:gap-is-no-duplicate",
        "Replay and Reconnect Semantics",
        "a client that takes each (session, seq) once and nothing up to its cursor keeps a gap and all that follows",
    ),
    Requirement("push:replay:snapshot-is-baseline", "Replay and Reconnect Semantics", "a client starts afresh from a snapshot"),
    Requirement("push:replay:delivery", "Replay and Reconnect Semantics", "each event arrives at least once, in order"),
    Requirement("push:replay:same-as-live", "Replay and Reconnect Semantics", "replayed events are the live ones, byte for byte"),
    Requirement("push:replay:slow-reader", FIELD, "a slow reader catches up, or is told of its gap, and slows nobody"),
)

CONCURRENCY = (
    Requirement("push:concurrency:one-active-run", "Concurrency Rules", "one active run a session"),
    Requirement("push:concurrency:observers", "Concurrency Rules", "any number of clients attach and see the same"),
    Requirement(
        "push:concurrency:first-approval-wins", "Concurrency Rules", "the first valid decision stands; later ones are told so"
    ),
)

APPROVALS = (
    Requirement("push:approval:gates-writes-and-commands", FIELD, "nothing is written or run before somebody decides"),
    Requirement("push:approval:deny-stops", FIELD, "a denial without a comment ends the run as denied"),
    Requirement(
        "push:approval:deny-with-comment-continues", FIELD, "a denial with a comment tells the model, and the run goes on"
    ),
    Requirement("push:approval:expiry", FIELD, "an expiry is told as one and is nobody's decision"),
    Requirement("push:approval:survives-restart", FIELD, "a pending approval survives a restart, and so does its run"),
    Requirement("push:files:refused-by-default", FIELD, "files that hold secrets are refused to tools without asking"),
)

HEADLESS = (
    Requirement("push:headless:same-events", "Headless Mode Semantics", "a headless run has the same events"),
    Requirement(
        "push:headless:no-prompt", "Headless Mode Semantics", "nobody is asked; what is not allowed beforehand is denied"
    ),
    Requirement("push:headless:json", "Headless Mode Semantics", "`--json` prints what `run_complete` said"),
    Requirement("push:headless:process-exit-code", "Headless Mode Semantics", "the process ends with the hint"),
    Requirement("push:headless:exit-0-success", "Headless Mode Semantics", "0: success"),
    Requirement("push:headless:exit-1-failed", "Headless Mode Semantics", "1: failed"),
    Requirement("push:headless:exit-2-cancelled", "Headless Mode Semantics", "2: cancelled"),
    Requirement("push:headless:exit-3-denied", "Headless Mode Semantics", "3: denied, never success"),
    Requirement("push:headless:exit-4-acceptance", "Headless Mode Semantics", "4: acceptance criteria failed"),
    Requirement("push:headless:denial-always-stops", FIELD, "headless, any denial ends the run"),
    Requirement("push:acceptance:executed-by-runtime", FIELD, "the daemon runs the criteria, in the workspace"),
    Requirement("push:acceptance:after-the-run", FIELD, "criteria run after the run, and only after a success"),
    Requirement("push:acceptance:failure", FIELD, "a criterion that does not pass makes the run fail"),
    Requirement("push:acceptance:output-cut", FIELD, "a result's output has 2,000 characters at most"),
    Requirement("push:acceptance:time-limit", FIELD, "a criterion has 120 seconds"),
)

SECURITY = (
    Requirement(
        "push:security:socket-owner-only", "Security Requirements", "the socket and what leads to it are its owner's only"
    ),
    Requirement("push:security:owner-socket-trusted", "Security Requirements", "the owner attaches without a token by default"),
    Requirement(
        "push:security:token-required-by-setting", "Security Requirements", "a setting makes tokens required on the socket"
    ),
    Requirement("push:security:wrong-token", "Security Requirements", "a wrong token never attaches"),
    Requirement(
        "push:security:token-survives-restart", "Security Requirements", "a token stays good, and is stored only as a hash"
    ),
    Requirement("push:security:websocket-token", "Security Requirements", "a WebSocket needs the owner's token"),
    Requirement(
        "push:security:no-leaks", "Security Requirements", "a client hears of the sessions it attached to and of no other"
    ),
    Requirement(
        "push:security:redaction", "Security Requirements", "tokens and credentials are redacted from events, store and logs"
    ),
    Requirement("push:security:approval-provenance", "Security Requirements", "a decision says where it came from"),
)

SCHEMAS = (
    Requirement("push:schemas:committed", "Schema Artifacts", "five schemas, generated from the message types and committed"),
    Requirement("push:schemas:examples", "Schema Artifacts", "every message of the document is valid"),
    Requirement("push:schemas:required-fields", FIELD, "every field that clients rely on is required"),
    Requirement("push:schemas:daemon-agrees", FIELD, "what the schema refuses the daemon refuses, and the other way round"),
    Requirement(
        "push:schemas:integral-fractions",
        "Schema Artifacts",
        "JSON Schema calls 20.0 an integer",
        divergence="the daemon refuses whole numbers that are written as fractions; no client writes them so",
    ),
)

CONTRACT = tuple(
    Requirement(f"push:contract:{name}", "Minimal Contract Tests (Phase 0)", behaviour)
    for name, behaviour in {
        "handshake": "hello tells version and capabilities",
        "session-start": "start_session answers with an id and emits session_started",
        "streaming": "a message emits tokens in order, then run_complete",
        "tool-visibility": "a tool's call and result have the same name",
        "approval": "an approval pauses the run, a decision resumes it",
        "cancel": "a cancelled run completes as cancelled",
        "replay": "attach replays what is missing, in order",
    }.items()
)

REQUIREMENTS = (
    *VERSIONING,
    *TRANSPORT,
    *ENVELOPES,
    *REQUESTS,
    *EVENTS,
    *CODES,
    *REPLAY,
    *CONCURRENCY,
    *APPROVALS,
    *HEADLESS,
    *SECURITY,
    *SCHEMAS,
    *CONTRACT,
)
