"""The pi-server protocol: every sentence of its document that binds a server, and what its clients in the field rely on."""

from tests.conformance.requirements.requirement import Requirement

FIELD = "Clients in the field"
OURS = "Ours, beyond the document"

FRAMING = (
    Requirement("pi:framing:transports", "3. Transport and framing", "WebSocket, and lines over stdio, carry the same frames"),
    Requirement("pi:framing:one-object", "3.1 Message shape", "every frame is exactly one JSON object, in both directions"),
    Requirement("pi:framing:malformed", "3.2 Admission limits", "what is no JSON object is answered as `unknown`, and no more"),
    Requirement("pi:framing:size", "3.2 Admission limits", "a frame beyond 10 MiB, or what is configured, is refused"),
    Requirement("pi:framing:unicode", FIELD, "text comes back as it was sent, however its bytes were cut"),
    Requirement("pi:framing:main-port", OURS, "the main port speaks it at `/ws/pi`, with the token"),
    Requirement("pi:version:announced", "2.1 Protocol versioning", "`server_ready` names the protocol's version, 1.0.0"),
    Requirement("pi:version:additive-only", "14. Compatibility", "what is added to frames is listed; nothing else is sent"),
    Requirement("pi:version:unknown-fields", "14. Compatibility", "fields that a client adds are ignored"),
)

ENVELOPE = (
    Requirement("pi:envelope:type-required", "4. Command envelope", "a command has a `type`, a string"),
    Requirement("pi:envelope:invalid-fails", "4.2 Validation behavior", "an invalid command gets `success: false`"),
    Requirement("pi:envelope:rejected-silently", "4.2 Validation behavior", "what is refused before admission has no lifecycle"),
    Requirement("pi:envelope:field-limits", FIELD, "ids, keys, names, paths, texts and dependencies have their limits"),
    Requirement("pi:envelope:depends-needs-id", FIELD, "a command with `dependsOn` needs an `id`"),
    Requirement("pi:envelope:anon-refused", FIELD, "an id that begins with `anon:` is refused"),
    Requirement("pi:envelope:unknown-type", FIELD, "an unknown command is refused before admission"),
    Requirement("pi:envelope:null-is-absent", OURS, "`null` is as good as left out"),
    Requirement("pi:response:fields", "5. Response envelope", "a response has `type`, `command` and `success`"),
    Requirement("pi:response:id", "5.1 Response identity rules", "a response carries the request's id, also when it is invalid"),
    Requirement("pi:response:no-id", "5.1 Response identity rules", "without an id in the request there is none in the response"),
    Requirement("pi:response:no-stale-id", "5.1 Response identity rules", "a replay never tells the id of the first asking"),
    Requirement("pi:response:replayed", "5. Response envelope", "a replay says `replayed: true`"),
    Requirement("pi:response:data-key", FIELD, "what a response has to tell is under `data`"),
    Requirement("pi:response:version-where", FIELD, "every success about a session tells its version; failures never do"),
    Requirement("pi:response:failure", "12. Error model", "a failure has a readable `error`"),
)

LIFECYCLE = (
    Requirement("pi:lifecycle:accepted", "7.1 Admission gate", "an admitted command is told as accepted"),
    Requirement("pi:lifecycle:only-admitted", "7.1 Admission gate", "a command that is not admitted is told nothing of"),
    Requirement("pi:lifecycle:order", "7.2 Per-command phase order", "accepted, then started, then finished"),
    Requirement("pi:lifecycle:finished-once", "7.2 Per-command phase order", "finished is told exactly once"),
    Requirement("pi:lifecycle:replay-shape", "7.4 Replay lifecycle shape", "a replay is accepted and finished, never started"),
    Requirement("pi:lifecycle:broadcast", "6.2 Global lifecycle events", "every connection hears of every admitted command"),
    Requirement("pi:lifecycle:metadata", FIELD, "the events carry what the command said of itself and how it ended"),
    Requirement("pi:lifecycle:wire-order", FIELD, "finished, then the response, then sessions that came or went"),
    Requirement("pi:lifecycle:anonymous", FIELD, "a command without id goes by `anon:<ms>:<n>`"),
    Requirement("pi:lifecycle:anonymous-not-kept", FIELD, "nobody can depend on a command without id"),
    Requirement("pi:lifecycle:refused-after-admission", FIELD, "conflicts and rates are refused between accepted and finished"),
    Requirement("pi:lifecycle:opt-out", OURS, "a client can do without lifecycle events"),
)

LANES = (
    Requirement("pi:lane:serial", "7.3 Lane execution model", "within a lane commands run in the order they came"),
    Requirement("pi:lane:independent", "7.3 Lane execution model", "lanes do not wait for each other"),
    Requirement("pi:lane:key", FIELD, "whatever names a session goes through that session's lane"),
    Requirement("pi:lane:control-passes", FIELD, "a run occupies no lane: reads, control, joining and answers pass it"),
)

IDENTITY = (
    Requirement("pi:replay:same-id", "8.1 Duplicate command id", "the same id and meaning get the first outcome"),
    Requirement("pi:replay:conflict", "8.1 Duplicate command id", "the same id with another meaning is a conflict"),
    Requirement("pi:replay:fingerprint", "8.3 Fingerprint", "meaning counts: not the order of keys nor the spelling of numbers"),
    Requirement("pi:replay:in-flight", FIELD, "a duplicate of a command under way awaits it"),
    Requirement("pi:replay:restart", OURS, "outcomes survive a restart, and a kill"),
    Requirement("pi:replay:shutdown", "8.1 Duplicate command id", "an outcome sent at a shutdown is the one that is replayed"),
    Requirement("pi:replay:between-connections", OURS, "a client that comes back finds its outcomes"),
    Requirement("pi:replay:namespaces", OURS, "ids of a `tower stdio` process are its own; those of WebSockets are shared"),
    Requirement("pi:idempotency:same-key", "8.2 idempotencyKey", "the same key and meaning get the first outcome"),
    Requirement("pi:idempotency:conflict", "8.2 idempotencyKey", "the same key with another meaning is a conflict"),
    Requirement("pi:idempotency:scope", "8.2 idempotencyKey", "a key belongs to its session, or to the server"),
    Requirement("pi:idempotency:expiry", "8.2 idempotencyKey", "an expired key is as good as new"),
    Requirement("pi:idempotency:before-id", FIELD, "the key is looked at before the id"),
)

DEPENDENCIES = (
    Requirement("pi:depends:success", "9. Dependency semantics", "dependencies that have succeeded let a command run"),
    Requirement("pi:depends:waits", "9. Dependency semantics", "dependencies under way are awaited"),
    Requirement("pi:depends:unknown", "9. Dependency semantics", "an unknown dependency fails the command"),
    Requirement("pi:depends:failed", "9. Dependency semantics", "a failed dependency fails the command"),
    Requirement("pi:depends:itself", FIELD, "a command cannot depend on itself"),
    Requirement("pi:depends:timeout", "9.1 Dependency timeout", "waiting for a dependency has an end, which is a failure"),
    Requirement("pi:depends:same-lane", "9.2 Same-lane inversion guard", "a dependency behind its dependent fails it at once"),
)

VERSIONS = (
    Requirement("pi:session-version:initial", "10. Session version semantics", "a new session has version 0"),
    Requirement("pi:session-version:reads", "10. Session version semantics", "reads leave the version alone"),
    Requirement("pi:session-version:mutations", "10. Session version semantics", "every other success adds one"),
    Requirement("pi:session-version:failures", "10. Session version semantics", "failures leave the version alone"),
    Requirement("pi:session-version:monotonic", "10. Session version semantics", "the version never falls"),
    Requirement("pi:session-version:deleted", "10. Session version semantics", "an unloaded session has no version"),
    Requirement("pi:if-version:missing-session", "10.1 ifSessionVersion", "fails where there is no session"),
    Requirement("pi:if-version:mismatch", "10.1 ifSessionVersion", "fails at another version"),
    Requirement("pi:if-version:match", "10.1 ifSessionVersion", "proceeds at this very version, for one of those that race"),
)

TIMEOUTS = (
    Requirement("pi:timeout:outcome", "11. Timeout semantics", "a timeout is a failure with `timedOut: true`"),
    Requirement("pi:timeout:replayed", "11. Timeout semantics", "the same id gets the same timeout again"),
    Requirement("pi:timeout:not-overwritten", "11. Timeout semantics", "what comes later changes no outcome"),
    Requirement("pi:timeout:aborts", FIELD, "a timeout ends the work it covers"),
    Requirement("pi:timeout:run-not-covered", OURS, "a command's timeout covers its wait and its start, not the run (ADR 0039)"),
    Requirement("pi:timeout:waiting-for-people", OURS, "time for which a question is open does not count (ADR 0039)"),
    Requirement("pi:timeout:dependents", "9. Dependency semantics", "a timeout is a failure to those that depend on it"),
    Requirement("pi:timeout:defaults", FIELD, "30 s for reads, none for create_session, 5 min for the rest"),
)

LIMITS = (
    Requirement("pi:limit:sessions", FIELD, "so many sessions may be loaded at a time"),
    Requirement("pi:limit:connections", FIELD, "a connection too many is closed with 1013"),
    Requirement("pi:limit:rate", FIELD, "commands a minute, for each client: to one session and in all"),
    Requirement("pi:limit:control", OURS, "what stops or decides is not refused for the rate of other commands"),
    Requirement("pi:limit:outcomes", FIELD, "the outcomes that are kept in memory are bounded"),
    Requirement("pi:limit:defaults", FIELD, "the defaults are the original server's"),
)

SESSIONS = (
    Requirement("pi:session:create", "17.1 Server commands", "create_session, with an id and a folder of the client's choice"),
    Requirement("pi:session:exists", "22.1 Common error conditions", "an id that is taken is refused"),
    Requirement("pi:session:other-protocols", OURS, "other protocols list, approve, continue and delete a session that pi named"),
    Requirement("pi:session:name-kept", OURS, "pi sees the id that it chose in every frame, also after a kill"),
    Requirement("pi:session:older-ids", OURS, "sessions that an older release stored under pi's id disturb no other client"),
    Requirement("pi:session:name-reused", "17.1 Server commands", "the id of a deleted session can be used again, in any folder"),
    Requirement("pi:session:list", "17.1 Server commands", "list_sessions tells the sessions at hand"),
    Requirement("pi:session:delete", "17.1 Server commands", "delete_session unloads; what is stored stays"),
    Requirement("pi:session:switch", "17.1 Server commands", "switch_session adds a subscription"),
    Requirement("pi:session:state", "17.2 Session commands", "get_state is the session's info itself"),
    Requirement("pi:stored:list", "20.1 Listing stored sessions", "stored sessions: name, count, and the path under both names"),
    Requirement("pi:stored:file-exists", "20.1 Listing stored sessions", "`fileExists` is true only where there is a file"),
    Requirement("pi:stored:keeps-id", "20.2 Loading a session", "a file's session keeps its id; loading it twice is refused"),
    Requirement("pi:stored:load", "20.2 Loading a session", "load_session by path, under an id of the client's choice"),
    Requirement("pi:stored:paths", "20.2 Loading a session", "only absolute paths under the allowed directories"),
    Requirement("pi:stored:project-local", "20.2 Loading a session", "any `.pi/sessions` directory is allowed"),
    Requirement("pi:stored:faithful", FIELD, "a file's provider, model, usage, cost, ends and roles are kept"),
    Requirement("pi:stored:export", OURS, "export_jsonl: the conversation as a file of pi's"),
    Requirement("pi:stored:published", FIELD, "pi's published loader reads what is exported"),
    Requirement("pi:stored:foreign", OURS, "files that pi wrote are listed, imported and continued"),
)

DISCOVERY = (
    Requirement("pi:discovery:models", "17.2 Session commands", "get_available_models"),
    Requirement("pi:discovery:commands", "17.2 Session commands", "get_commands, with where each comes from"),
    Requirement("pi:discovery:skills", "17.2 Session commands", "get_skills, with their files"),
    Requirement("pi:discovery:tools", "17.2 Session commands", "get_tools"),
    Requirement("pi:discovery:session-files", "17.2 Session commands", "list_session_files: those of the session's folder"),
    Requirement("pi:discovery:unknown-session", "22.1 Common error conditions", "discovery needs a session that is there"),
)

WORK = (
    Requirement("pi:prompt:answered-at-end", FIELD, "prompt is answered when the run has ended"),
    Requirement("pi:prompt:images", FIELD, "pictures come with a message"),
    Requirement("pi:prompt:streaming-behavior", "17.2 Session commands", "a prompt to a running agent steers or follows"),
    Requirement("pi:prompt:model-failure", FIELD, "a failing model fails the prompt"),
    Requirement("pi:steer:delivered", "17.2 Session commands", "steer reaches the running agent first"),
    Requirement("pi:follow-up:queued", "17.2 Session commands", "follow_up waits until the agent has finished"),
    Requirement("pi:abort:ends-the-run", "17.2 Session commands", "abort ends the run, and succeeds when there is none"),
    Requirement("pi:messages:failed", "19.2 Message events", "a failed or broken-off message stays in get_messages, with why"),
    Requirement("pi:messages:killed", OURS, "what a killed run had said stays, for clients and for the model"),
    Requirement("pi:messages:bash", FIELD, "a bash command is a message of role bashExecution"),
    Requirement("pi:messages:summary", FIELD, "a compaction is a message of role compactionSummary"),
    Requirement("pi:messages:empty", "17.2 Session commands", "get_messages and its kin where nothing was said"),
    Requirement("pi:stats:session", "17.2 Session commands", "get_session_stats adds up"),
    Requirement("pi:stats:context", "17.2 Session commands", "get_context_usage"),
    Requirement("pi:model:set", "17.2 Session commands", "set_model by provider and id"),
    Requirement("pi:model:unknown", FIELD, "an unknown model is refused"),
    Requirement("pi:model:cycle", "17.2 Session commands", "cycle_model in both directions; null where there is one"),
    Requirement("pi:thinking:set", FIELD, "all levels are accepted"),
    Requirement("pi:thinking:cycle", "17.2 Session commands", "cycle_thinking_level"),
    Requirement("pi:compaction:compact", "17.2 Session commands", "compact, with instructions"),
    Requirement("pi:compaction:abort", "17.2 Session commands", "abort_compaction"),
    Requirement("pi:compaction:auto", "17.2 Session commands", "automatic compaction, and set_auto_compaction"),
    Requirement("pi:retry:events", "19.5 Auto-retry events", "a passing trouble is retried"),
    Requirement("pi:retry:abort", "17.2 Session commands", "abort_retry ends the countdown"),
    Requirement("pi:retry:switch", "17.2 Session commands", "set_auto_retry"),
    Requirement("pi:bash:result", "17.2 Session commands", "bash: exit code and output"),
    Requirement("pi:bash:abort", "17.2 Session commands", "abort_bash"),
    Requirement("pi:bash:context", FIELD, "excludeFromContext keeps the output from the model"),
    Requirement("pi:fork:preview", "17.2 Session commands", "get_fork_messages"),
    Requirement("pi:fork:fork", "17.2 Session commands", "fork: the session becomes what came before a message"),
    Requirement("pi:fork:unknown-entry", "12. Error model", "an entry that is not there is refused in words"),
    Requirement("pi:files:new-session", "17.2 Session commands", "new_session begins anew and loses nothing"),
    Requirement("pi:files:switch", "17.2 Session commands", "switch_session_file"),
    Requirement("pi:export:page", "17.2 Session commands", "export_html: one page that needs nothing else"),
    Requirement("pi:export:paths", OURS, "a page is written into the session's folder or ours"),
)

UI = (
    Requirement("pi:ui:request", "18.1 Request event", "questions arrive as extension_ui_request"),
    Requirement("pi:ui:broadcast", "18.1 Request event", "every subscriber is asked"),
    Requirement("pi:ui:select", "18.1 Request event", "select"),
    Requirement("pi:ui:confirm", "18.1 Request event", "confirm, as approvals are asked"),
    Requirement("pi:ui:input", "18.1 Request event", "input"),
    Requirement("pi:ui:interview", "18.1 Request event", "interview"),
    Requirement(
        "pi:ui:editor",
        "18.1 Request event",
        "editor",
        divergence="no shipped extension opens an editor; its shape is tested with the other requests'",
    ),
    Requirement("pi:ui:method", "18.2 Response command", "an answer of another kind is refused, and the question stays"),
    Requirement("pi:ui:cancelled", "18.2 Response command", "cancelled dismisses a question of any kind"),
    Requirement("pi:ui:first-wins", FIELD, "the first answer wins"),
    Requirement("pi:ui:unknown", FIELD, "a question that was not asked cannot be answered"),
    Requirement("pi:ui:timeout", "18.3 Timeout behavior", "a question that nobody answers fails after its time"),
    Requirement("pi:ui:restart", OURS, "an approval survives a restart"),
)

EVENTS = (
    Requirement("pi:event:server_ready", "16.1 server_ready", "the first frame of a connection"),
    Requirement("pi:event:server_shutdown", "16.2 server_shutdown", "announced before the server closes"),
    Requirement("pi:event:session_created", "6. Event taxonomy", "told to everybody, also for loaded sessions"),
    Requirement("pi:event:session_deleted", "6. Event taxonomy", "told to everybody"),
    Requirement("pi:event:envelope", "6.1 Session-scoped AgentSession events", "session events carry their session's id"),
    Requirement("pi:event:subscribers-only", "6.1 Session-scoped AgentSession events", "delivered to subscribers alone"),
    Requirement("pi:event:agent", "19.1 Agent lifecycle events", "a run and its turns, from start to end"),
    Requirement("pi:event:message", "19.2 Message events", "messages start and end; the end is what get_messages tells"),
    Requirement("pi:event:message-model", FIELD, "an assistant message names its provider and model"),
    Requirement("pi:event:message-update", FIELD, "pieces of text, thinking and tool calls make up the blocks"),
    Requirement("pi:event:message-update-cost", FIELD, "an update's size does not grow with the message"),
    Requirement("pi:event:tool", "19.3 Tool execution events", "a tool's start, output and end"),
    Requirement("pi:event:auto_compaction", "19.4 Auto-compaction events", "why it began and what came of it"),
    Requirement("pi:event:auto_retry", "19.5 Auto-retry events", "the countdown and how it ended"),
    Requirement("pi:event:published-types", FIELD, "events, messages and figures have the types that pi's package publishes"),
    Requirement("pi:event:nothing-lost", FIELD, "a slow or late subscriber misses nothing"),
    Requirement("pi:event:survives-restart", OURS, "the conversation is the same after a restart"),
)

SERVER = (
    Requirement("pi:server:health", "21.2 Health check", "health_check tells of open circuits"),
    Requirement("pi:server:metrics", "21.3 Metrics", "get_metrics counts what happens"),
    Requirement("pi:server:both-transports", FIELD, "`pi-server` speaks over stdio and at its port at once"),
    Requirement("pi:server:stdout", FIELD, "stdout carries protocol lines only"),
    Requirement("pi:server:stdin-eof", FIELD, "the end of stdin ends the stdio server"),
    Requirement("pi:server:used-port", FIELD, "a used port is a non-zero exit"),
    Requirement("pi:server:port-variable", FIELD, "`PI_SERVER_PORT` names the port"),
    Requirement("pi:server:access", FIELD, "it listens on this machine alone unless told otherwise"),
    Requirement("pi:shutdown:announced", "16.2 server_shutdown", "SIGTERM sends server_shutdown first"),
    Requirement("pi:shutdown:close-code", FIELD, "a WebSocket is closed with 1001"),
    Requirement("pi:shutdown:refuses", "7.1 Admission gate", "new commands are refused, without a lifecycle"),
    Requirement("pi:shutdown:finishes-work", "16.2 server_shutdown", "what is under way has its time"),
    Requirement("pi:breaker:model", "21. Circuit breaker", "a provider that keeps failing is left alone"),
    Requirement("pi:breaker:bash", "21. Circuit breaker", "bash that keeps timing out is refused for a while"),
)

ERRORS = (
    Requirement("pi:error:no-internal", "12. Error model", "whatever a client sends gets one answer, in words it can act on"),
    Requirement("pi:error:shape", "22. Error responses", "`type`, `command`, `success: false` and `error`"),
    Requirement("pi:error:validation", FIELD, "`Validation failed: <field>: …`"),
    Requirement("pi:error:unknown-command", FIELD, "`Unknown command type 'x'`"),
    Requirement("pi:error:session-not-found", "22.1 Common error conditions", "`Session <id> not found`"),
    Requirement("pi:error:session-exists", "22.1 Common error conditions", "`Session <id> already exists`"),
    Requirement("pi:error:session-limit", "22.1 Common error conditions", "`Session limit reached (N sessions)`"),
    Requirement("pi:error:session-path", "22.1 Common error conditions", "`sessionPath must …`"),
    Requirement("pi:error:version-mismatch", FIELD, "`Session version mismatch: expected N, got M`"),
    Requirement("pi:error:dependency", FIELD, "`Dependency 'x' is unknown`, `… failed: …`"),
    Requirement("pi:error:identity-conflict", FIELD, "`Conflicting id 'x': previously used for 'A', now used for 'B'`"),
    Requirement("pi:error:rate", FIELD, "`Rate limit exceeded (N commands/minute)`"),
    Requirement("pi:error:message-size", FIELD, "`Message size N exceeds limit M`"),
    Requirement("pi:error:shutting-down", FIELD, "`Server is shutting down`"),
    Requirement("pi:error:model-not-found", FIELD, "`Model not found: p/m`"),
    Requirement("pi:error:no-ui-request", FIELD, "`No pending UI request with id x`"),
    Requirement("pi:error:circuit-breaker", "22.1 Common error conditions", "`Circuit breaker open`"),
    Requirement("pi:error:bash-breaker", "22.1 Common error conditions", "`Bash circuit breaker open`"),
)

DECIDED = (
    Requirement(
        "pi:decided:stdio-ids",
        "8.1 Duplicate command id",
        "ids are shared by all clients of one server, stdio and WebSocket alike",
        divergence="a stdio process counts its ids for itself: two of them that count from 1 must not get each other's answers",
    ),
    Requirement(
        "pi:decided:run-lane",
        "7.3 Lane execution model",
        "a command holds its lane to its end",
        divergence="a run does not hold its session's lane, so that abort, answers and reads pass it (ADR 0016)",
    ),
    Requirement(
        "pi:decided:follow-up-run",
        FIELD,
        "a follow-up belongs to the run that it follows, with one agent_end for both",
        divergence="a follow-up is a separate run, so that a restart between the two loses nothing (ADR 0008)",
    ),
    Requirement(
        "pi:decided:idle-steer",
        FIELD,
        "steer and follow_up to an idle session wait for the next prompt",
        divergence="they start a run, so that a message that comes a moment after the run's end is not lost (ADR 0008)",
    ),
    Requirement(
        "pi:decided:ids-remembered",
        "8.1 Duplicate command id",
        "the original forgets ids when it restarts",
        divergence="ids are remembered for a week: a retry after a restart must not run twice, and 13.1 asks for unique ids",
    ),
    Requirement(
        "pi:decided:inversion-at-its-turn",
        "9.2 Same-lane inversion guard",
        "a dependency that cannot be awaited fails its dependent at once",
        divergence="it fails when its turn comes: until then the dependency may have ended or left the lane",
    ),
    Requirement(
        "pi:decided:delete-waits",
        "17.1 Server commands",
        "delete_session unloads a session",
        divergence="it waits for the run in it, as an unloaded session has none; abort first to be quick",
    ),
    Requirement(
        "pi:decided:model-figures",
        FIELD,
        "a model's baseUrl, reasoning and input are its own",
        divergence="the catalogue does not know them; an address may hold a secret and is not shown",
    ),
    Requirement(
        "pi:decided:empty-frame",
        "3.1 Message shape",
        "an empty WebSocket frame is no JSON object",
        divergence="it is ignored like an empty line over stdio: there is no command to answer",
    ),
)

CLIENTS = (
    Requirement(
        "pi:client:obligations",
        "13. Client obligations",
        "ids of their own, retries with keys, versions as authority, no order across lanes",
        divergence="binds clients; what a server does with one that breaks these rules is required above",
    ),
    Requirement(
        "pi:client:handling",
        "22.2 Handling errors",
        "clients look at `success`, show `error`, retry with care; disconnect from an incompatible version",
        divergence="binds clients",
    ),
)

REQUIREMENTS = (
    *FRAMING,
    *ENVELOPE,
    *LIFECYCLE,
    *LANES,
    *IDENTITY,
    *DEPENDENCIES,
    *VERSIONS,
    *TIMEOUTS,
    *LIMITS,
    *SESSIONS,
    *DISCOVERY,
    *WORK,
    *UI,
    *EVENTS,
    *SERVER,
    *ERRORS,
    *DECIDED,
    *CLIENTS,
)
