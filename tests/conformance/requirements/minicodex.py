"""The MiniCodex protocol: every sentence of its document that binds a server, and our reading where it contradicts itself."""

from tests.conformance.requirements.requirement import Requirement

OURS = "Our reading of what the document leaves open"

HANDSHAKE = (
    Requirement("minicodex:handshake:hello", "Handshake & resume", "`hello` is answered by `welcome` and `snapshot`"),
    Requirement("minicodex:handshake:first", "Handshake & resume", "before `hello` or `resume` every other command is refused"),
    Requirement("minicodex:handshake:versions", "Versioning", "the version is semantic; another major one is refused and closed"),
    Requirement("minicodex:handshake:capabilities", OURS, "extensions count only for a client that has named them"),
    Requirement("minicodex:handshake:new-session", OURS, "without `session_id` a session is made and named in `welcome`"),
    Requirement("minicodex:handshake:unknown-session", OURS, "a session that is not there is refused and the connection closed"),
    Requirement("minicodex:session:deleted", OURS, "a session that is deleted is closed as an unknown one: the error, then 1008"),
    Requirement("minicodex:handshake:token", OURS, "the token is asked for before the connection is upgraded"),
    Requirement("minicodex:handshake:req-id", "Envelope", "`welcome` carries the `req_id` of what it answers"),
    Requirement("minicodex:handshake:again", OURS, "a second `hello` begins again in the same session; nothing is told twice"),
)

ENVELOPE = (
    Requirement("minicodex:envelope:fields", "Envelope", "every command may carry every field of the envelope"),
    Requirement(
        "minicodex:envelope:stale-run",
        "Semantics, Errors",
        "`send`, `approve`, `deny` and `abort` with the `run_id` of another run than the active one are `STALE_RUN_ID`",
    ),
    Requirement("minicodex:envelope:other-session", OURS, "a command with another `session_id` is `BAD_ARGUMENT`"),
    Requirement("minicodex:envelope:strict", "Pydantic", "unknown fields and wrong types are refused"),
    Requirement(
        "minicodex:envelope:req-id", "Envelope", "an answer carries the `req_id` of its command, also when it is an error"
    ),
    Requirement("minicodex:envelope:in-order", "Semantics", "a client's commands are answered in the order they came"),
    Requirement("minicodex:errors:codes", "Error codes", "each mistake has its code"),
    Requirement("minicodex:errors:no-state-change", "Semantics, Errors", "a refused command changes nothing"),
    Requirement("minicodex:errors:hostile", "Semantics, Errors", "whatever a client sends is answered, and the session goes on"),
    Requirement("minicodex:commands:ping", OURS, "`ping` is answered by `accepted` with its `req_id`, or else its nonce"),
    Requirement("minicodex:commands:snapshot", "Client → Server", "`get_snapshot` has the transcript only if it is asked for"),
)

RUNS = (
    Requirement("minicodex:run:accepted", "Server → Client", "`accepted` comes before the events of what was asked"),
    Requirement(
        "minicodex:run:order", "UI state machine", "starting, running, perhaps awaiting_approval, then finished or error"
    ),
    Requirement("minicodex:run:items", "Transcript items", "items carry `event_id`, `run_id` and `ts`"),
    Requirement("minicodex:run:reasoning", "Transcript items", "reasoning is told apart from text"),
    Requirement(
        "minicodex:run:turn-done", "Semantics, Run completion", "`turn_done` ends a run without tool outputs, and only such"
    ),
    Requirement("minicodex:run:one-output-a-call", "Transcript items", "each `tool_call` has one `function_call_output`"),
    Requirement("minicodex:run:failure", "RunState", "a run that fails says why, and its last status is `error`"),
    Requirement("minicodex:run:busy", "Error codes", "a message while a run is active is refused with `BUSY`"),
    Requirement(
        "minicodex:send:idempotent", "Semantics, Idempotency", "a known `client_msg_id` is accepted and ignored, before `BUSY`"
    ),
    Requirement("minicodex:send:another-text", OURS, "after a run, another text under one of its ids is `BAD_ARGUMENT`"),
    Requirement("minicodex:run:busy-names-the-run", "RunState", "`BUSY` names the active run by its UUID"),
    Requirement("minicodex:abort:order", OURS, "aborting, the error `ABORTED`, then `finished`"),
    Requirement("minicodex:abort:open-calls", OURS, "every open call gets an output with `isError` before the last status"),
    Requirement("minicodex:abort:stale", OURS, "another run's id is `STALE_RUN_ID`"),
    Requirement("minicodex:abort:not-running", OURS, "without an active run it is `NOT_RUNNING`"),
)

APPROVALS = (
    Requirement(
        "minicodex:approval:pending", "Approvals", "`approval_pending` names the tool and its arguments; nothing runs before"
    ),
    Requirement("minicodex:approval:same-call-id", OURS, "its `call_id` is the `tool_call`'s"),
    Requirement("minicodex:approval:deny-continue", "Approvals", "`deny` goes on without the call"),
    Requirement("minicodex:approval:deny-abort", OURS, "`abort: true` on `deny` ends the run, if the capability was negotiated"),
    Requirement("minicodex:approval:conflict", "Error codes", "a second decision is `APPROVAL_CONFLICT`"),
    Requirement("minicodex:approval:unknown", "Error codes", "what was never asked is `UNKNOWN_CALL_ID`"),
    Requirement("minicodex:approval:serialised", "Semantics, Multi-client", "of many decisions the first counts"),
    Requirement(
        "minicodex:approval:withdrawn",
        "Approvals",
        "a question that is withdrawn or expires has an `approval_decision`, and a late decision is told what became of it",
    ),
    Requirement("minicodex:tools:call-tool-result", "FunctionCallOutput", "a result is a serialized MCP CallToolResult"),
    Requirement("minicodex:tools:mcp-keys", OURS, "tools of MCP servers go by `{server}_{tool}`"),
)

EVENTS = (
    Requirement("minicodex:events:monotonic", "Semantics, Ordering", "`event_id` is strictly monotonic"),
    Requirement("minicodex:events:one-run", "Core concepts", "every event of a run names it"),
    Requirement("minicodex:events:fanout", "Semantics, Multi-client", "all clients of a session are told the same"),
    Requirement("minicodex:resume:exact", "Handshake & resume", "`resume` replays exactly what was not seen, from any event"),
    Requirement("minicodex:resume:from-the-start", "Handshake & resume", "from 0 everything; without a place a snapshot"),
    Requirement("minicodex:resume:goes-on-live", "Handshake & resume", "behind the replay the stream goes on"),
    Requirement("minicodex:resume:gap", "Handshake & resume", "what cannot be replayed is `REPLAY_GAP`; `get_snapshot` goes on"),
    Requirement(
        "minicodex:state:nulls",
        "State models",
        "what the document lists as `… | null` is sent as null: a snapshot's run, a session's run and last event, a run's end",
    ),
    Requirement("minicodex:state:fold", "Goals", "the events folded are the snapshot, with and without the transcript"),
    Requirement("minicodex:state:hello-snapshot", "Goals", "a snapshot and what follows it are as good as everything"),
    Requirement("minicodex:state:snapshot-event-id", OURS, "`event_id` is the last it includes; the stream goes on behind it"),
    Requirement("minicodex:flow:heartbeat", "Heartbeat", "at the configured interval, to who was greeted"),
    Requirement(
        "minicodex:flow:backpressure",
        "Backpressure",
        "`drain` when no more can be handed to a client, `ok` when it has caught up",
    ),
)

MATRIX = (
    Requirement("minicodex:matrix:fresh-connect", "Test matrix", "fresh connect: hello, welcome, snapshot"),
    Requirement("minicodex:matrix:text-only", "Test matrix", "send, text, finished, turn_done"),
    Requirement("minicodex:matrix:approval", "Test matrix", "approval_pending, approve, function_call_output, finished"),
    Requirement("minicodex:matrix:abort", "Test matrix", "abort in the middle of a run ends it"),
    Requirement("minicodex:matrix:resume", "Test matrix", "resume after a refresh replays from `last_seen_event_id`"),
    Requirement("minicodex:matrix:fanout", "Test matrix", "several clients are told the same"),
    Requirement("minicodex:matrix:dedupe", "Test matrix", "a `client_msg_id` counts once"),
)

REQUIREMENTS = (*HANDSHAKE, *ENVELOPE, *RUNS, *APPROVALS, *EVENTS, *MATRIX)
