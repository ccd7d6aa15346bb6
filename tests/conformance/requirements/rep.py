"""REP, for both roles: every sentence of its document that binds an orchestrator or a runtime, the Flow IR and the points that
were settled beside it, and what the public implementation lacks, each as the promise that ours has it."""

from tests.conformance.requirements.requirement import Requirement

PROJECTS = "Terminology and Project Model"
TRANSPORT = "Transport"
LIFECYCLE = "Process Lifecycle"
ENVELOPE = "JSON-RPC Envelope Requirements"
CAPABILITIES = "Runtime.Capabilities"
START = "Runtime.StartRun"
POLL = "Runtime.Poll"
CANCEL = "Runtime.Cancel"
HEALTH = "Runtime.Health"
TAXONOMY = "Error Taxonomy"
LOGGING = "Logging and Events"
ENVIRONMENT = "Environment and Configuration"
NEGOTIATION = "Capability Negotiation"
CANCELLATION = "Cancellation and Timeouts"
TESTING = "Testing Requirements"
IR = "Flow IR v1.0.0"
SETTLED = "Points REP leaves open"
FAULTS = "Figures of the public implementation"
TOWER = "Flows in the tower"
OURS = "Our reading of what the document leaves open"

TALKING = (
    Requirement("rep:transport:stdio", TRANSPORT, "both sides speak JSON-RPC 2.0 in UTF-8 over stdin and stdout"),
    Requirement("rep:transport:lines", ENVELOPE, "a message is one JSON object, and a newline ends it"),
    Requirement(
        "rep:transport:pieces", OURS, "a runtime takes lines in however many pieces, with `\\r\\n` and without a last end"
    ),
    Requirement("rep:transport:spellings", OURS, "the orchestrator takes JSON as anybody spells it, half a character too"),
    Requirement("rep:transport:pairs", TRANSPORT, "the orchestrator asks nothing while an answer is due"),
    Requirement("rep:transport:unasked", TRANSPORT, "a line that nobody asked for, such as a notification, ends the run"),
    Requirement("rep:transport:process-per-run", TRANSPORT, "each run has a process of its own"),
    Requirement("rep:transport:one-run", TRANSPORT, "a runtime takes one run, and refuses a second"),
    Requirement("rep:transport:large", OURS, "a flow larger than a pipe arrives; one that nobody reads hangs nobody"),
    Requirement("rep:transport:stdout-is-protocol", OURS, "what a step prints is not among the answers"),
    Requirement("rep:transport:stderr-drained", SETTLED, "the orchestrator drains a runtime's stderr, however much it is"),
    Requirement("rep:transport:stderr-unread", SETTLED, "a command's errors do not stall a runtime whose stderr nobody reads"),
    Requirement("rep:envelope:ids", ENVELOPE, "the orchestrator's ids are numbers from 1, one more each time"),
    Requirement("rep:envelope:echo", ENVELOPE, "a runtime answers under the id of the request"),
    Requirement("rep:envelope:wrong-id", ENVELOPE, "an answer under another id ends the run"),
    Requirement("rep:envelope:methods", ENVELOPE, "methods are `Runtime.` and one of the names of the document"),
    Requirement("rep:envelope:no-notifications", ENVELOPE, "the orchestrator sends no notifications"),
    Requirement("rep:envelope:notifications", OURS, "a runtime obeys one, and does not answer it, as JSON-RPC has it"),
    Requirement("rep:envelope:unknown-fields", OURS, "both roles ignore fields that they do not know"),
    Requirement("rep:envelope:not-json", ENVELOPE, "what is no request is answered with 3001, and the conversation continues"),
    Requirement("rep:envelope:version", ENVELOPE, "a request without `jsonrpc: 2.0` is a protocol mismatch: 3001"),
    Requirement("rep:envelope:too-long", OURS, "a line without an end is not kept, by either role"),
)

LIVES = (
    Requirement("rep:lifecycle:order", LIFECYCLE, "`Capabilities`, then `StartRun`, then `Poll` until the end"),
    Requirement("rep:lifecycle:default-timeout", LIFECYCLE, "the engine timeout is 120 s unless it is said otherwise"),
    Requirement("rep:lifecycle:no-leftovers", LIFECYCLE, "a runtime that does not go is ended, with all that it started"),
    Requirement("rep:lifecycle:lingering", LIFECYCLE, "one that does not go after its run changes nothing about the outcome"),
    Requirement("rep:lifecycle:eof", SETTLED, "our runtime leaves when its input ends, whatever it is doing"),
    Requirement("rep:lifecycle:steps-end-too", OURS, "and what its steps have started leaves with it"),
    Requirement("rep:lifecycle:sigterm", OURS, "and when it is told to by a signal"),
    Requirement("rep:runtime:command", OURS, "`tower flow runtime` is that runtime"),
    Requirement("rep:together:a-run", OURS, "our orchestrator and our runtime need nothing between them but the document"),
)

METHODS = (
    Requirement("rep:capabilities:params", CAPABILITIES, "is asked with an empty object"),
    Requirement("rep:capabilities:fields", CAPABILITIES, "is answered with version, step_kinds and limits"),
    Requirement("rep:capabilities:version", CAPABILITIES, "the version is a semantic one"),
    Requirement("rep:capabilities:kinds-are-true", CAPABILITIES, "step_kinds are those that can be run, and no others"),
    Requirement("rep:capabilities:concurrency", CAPABILITIES, "no more steps run at once than limits.concurrency says"),
    Requirement("rep:capabilities:semver", CAPABILITIES, "an answer whose version is not semantic ends with 3"),
    Requirement("rep:capabilities:required", CAPABILITIES, "an answer without a required field ends with 3"),
    Requirement("rep:start:params", START, "ir, inputs, and options with run_id, trace_id and allow_shell"),
    Requirement("rep:start:payload", TRANSPORT, "the whole IR goes with it, as it was given"),
    Requirement("rep:start:inputs", START, "the user's inputs go with it"),
    Requirement("rep:start:ids-are-new", START, "each run has a run_id and a trace_id that no other has"),
    Requirement("rep:start:uuids", START, "run_id and trace_id are UUIDs, those of lent steps and under a daemon too"),
    Requirement("rep:start:run-id", START, "is answered with the run_id"),
    Requirement("rep:start:answered-id", START, "the run_id of the answer is the one that is polled"),
    Requirement("rep:start:without-id", SETTLED, "a runtime takes a null for the run_id, and no options at all"),
    Requirement("rep:start:allow-shell", START, "a command is run only where options and environment allow it"),
    Requirement("rep:start:version", START, "another version of the IR is 1001, before anything else of it is read"),
    Requirement("rep:start:refused", OURS, "of what is refused nothing runs, and another start may follow"),
    Requirement("rep:poll:params", POLL, "is asked with the run_id"),
    Requirement("rep:poll:answer", POLL, "is answered with status, events and summary with its two counts"),
    Requirement("rep:poll:statuses", POLL, "the status goes from pending over running to completed or failed, and stays"),
    Requirement("rep:poll:failed", POLL, "a run that was aborted by an error is failed"),
    Requirement("rep:poll:optional", POLL, "events may be left out"),
    Requirement("rep:poll:malformed", POLL, "a status that is none, or events that are no objects, end the run with 3001"),
    Requirement("rep:poll:unknown-run", OURS, "a run that is not there can be neither polled nor cancelled"),
    Requirement("rep:poll:drained", SETTLED, "each poll drains the events, and the orchestrator keeps all of them"),
    Requirement("rep:poll:bounded", OURS, "of a flood the ends are kept, all are handed on, and what was left out is counted"),
    Requirement("rep:poll:adaptive", SETTLED, "polls become rarer while nothing happens, and are never a busy loop"),
    Requirement("rep:cancel:params", CANCEL, "is asked with the run_id"),
    Requirement("rep:cancel:answer", CANCEL, "is answered with ok"),
    Requirement("rep:cancel:ends", CANCEL, "ends the run as soon as it can"),
    Requirement("rep:cancel:after-the-end", CANCEL, "of a run that is over it is ok too, and changes nothing"),
    Requirement("rep:health:answer", HEALTH, "is answered with ok and details, at any time"),
    Requirement("rep:health:not-needed", HEALTH, "the orchestrator can do without"),
)

ERRORS = (
    Requirement("rep:errors:form", TAXONOMY, "code, message, and data with step_id, attempt, retriable and details"),
    Requirement("rep:errors:codes", TAXONOMY, "1001, 1002, 1003 and 2001 mean what the table says"),
    Requirement("rep:errors:transport", TAXONOMY, "3001 is a broken transport, an end, or what is no JSON"),
    Requirement("rep:errors:panic", TAXONOMY, "3002 is a runtime that broke; its words stay off the wire"),
    Requirement("rep:errors:payload", TAXONOMY, "an `ir` that is none, and inputs that are none, are 1003"),
    Requirement("rep:errors:json-rpc", SETTLED, "-32601 and -32602 refuse what is no method and what are no params of it"),
    Requirement(
        "rep:errors:retriable", TAXONOMY, "validation and the runtime's own errors are not retriable; of a step it depends"
    ),
    Requirement("rep:errors:no-secrets", OURS, "what a runtime said last is told without secrets"),
    Requirement("rep:exits:table", TAXONOMY, "0 completed, 1 a step failed, 3 not valid, 4 the runtime broke"),
    Requirement("rep:exits:before-handshake", SETTLED, "2: the IR is not valid, and no runtime was started"),
    Requirement("rep:exits:refusals", SETTLED, "a refusal is told as it came, JSON-RPC's codes too; its class is the exit code"),
    Requirement("rep:exits:mismatch", ENVELOPE, "a runtime without a method, or that refuses its own run's params, is 4"),
    Requirement("rep:exits:cancelled", CANCELLATION, "a cancelled run is 3001, and so 4, whatever the runtime calls it"),
    Requirement("rep:exits:not-started", OURS, "a runtime that cannot be started is 4, with the cause and a remedy"),
)

EVENTS = (
    Requirement("rep:events:fields", LOGGING, "every event has its type and a time by RFC 3339"),
    Requirement("rep:events:required", LOGGING, "an event without type or timestamp ends the run with 3001"),
    Requirement("rep:events:ends", LOGGING, "a step that was cancelled or cut by a time limit has its end, and counts as failed"),
    Requirement("rep:events:log", LOGGING, "a log has level and message, and the step_id where there is one"),
    Requirement("rep:events:step", LOGGING, "a step has step_id and state, and what it took, gave or failed with"),
    Requirement("rep:events:logged", LOGGING, "the orchestrator tells them on stderr as they come, and in the outcome"),
    Requirement("rep:events:unknown-types", POLL, "types that are not known are kept and do no harm"),
    Requirement("rep:events:terminal", OURS, "what a runtime says does not steer the terminal"),
)

SURROUNDINGS = (
    Requirement("rep:environment:variables", ENVIRONMENT, "the five TRACE_MIND variables, the ids as in the options"),
    Requirement("rep:environment:log-json", ENVIRONMENT, "`--json` asks for structured logs, which our runtime then writes"),
    Requirement("rep:environment:runtime-reads", ENVIRONMENT, "our runtime takes its id from there when none was sent"),
    Requirement("rep:environment:no-keys", OURS, "a runtime sees no keys of ours"),
    Requirement("rep:project:file", ENVIRONMENT, "`tm/config/runtime.yaml` has the engine, its language and its path"),
    Requirement("rep:project:init", PROJECTS, "`tm init` binds a folder to one runtime"),
    Requirement("rep:project:one-runtime", PROJECTS, "that runtime is used from then on"),
    Requirement("rep:project:override", PROJECTS, "another is used where a flag names it"),
    Requirement("rep:project:family", NEGOTIATION, "plugins of another language family are 3, with the advice to run `tm init`"),
    Requirement("rep:project:family-warning", PROJECTS, "`tm validate` and `tm compile` warn of such a project"),
    Requirement("rep:negotiation:mismatch", NEGOTIATION, "a kind that the runtime lacks ends with 3, and nothing is started"),
    Requirement("rep:negotiation:manifest", NEGOTIATION, "the kinds that are needed are those of the manifest's flow"),
    Requirement("rep:negotiation:cache", NEGOTIATION, "what the runtime said is kept under `~/.trace_mind/runtime_capabilities`"),
    Requirement("rep:negotiation:clear", NEGOTIATION, "`tm runtime cache clear --engine NAME` forgets it"),
    Requirement("rep:timeouts:engine", CANCELLATION, "a run that exceeds its time is 3001 with the cause `Timeout`, exit 4"),
    Requirement("rep:timeouts:step", CANCELLATION, "our runtime enforces the time limits of steps"),
    Requirement("rep:timeouts:flow", IR, "and that of the flow"),
    Requirement("rep:cancel:once", CANCELLATION, "a user's cancel is sent once"),
    Requirement("rep:cancel:hanging", CANCELLATION, "also to a runtime that hangs with an answer due"),
    Requirement("rep:cancel:five-seconds", CANCELLATION, "and after five seconds the runtime is ended by force"),
    Requirement("rep:cancel:before-the-run", OURS, "before a run was asked for there is nothing to wait for"),
    Requirement("rep:cancel:again", OURS, "who interrupts again does not wait, and leaves no runtime behind"),
    Requirement("rep:contract:handshake", TESTING, "contract tests have the handshake, and a mismatch"),
    Requirement("rep:contract:lifecycle", TESTING, "start, poll, completion and failure"),
    Requirement("rep:contract:transport", TESTING, "broken transport as 3001"),
    Requirement("rep:contract:exit-2", TESTING, "an IR that fails its schema"),
    Requirement("rep:contract:engine-timeout", TESTING, "and the engine timeout"),
)

FLOWS = (
    Requirement("rep:ir:required", IR, "version, flow, constants, inputs_schema, graph and metadata are required"),
    Requirement("rep:ir:closed", IR, "flow, constants, graph and retry are closed"),
    Requirement("rep:ir:open", IR, "the document, nodes, edges and metadata may have more"),
    Requirement("rep:ir:names", IR, "names of flows and nodes are letters, digits, `_`, `.` and `-`"),
    Requirement("rep:ir:bounds", IR, "timeouts are 0 to 2^31-1, a graph has a node, a kind and a policyRef have a name"),
    Requirement("rep:ir:unique-ids", IR, "ids are unique"),
    Requirement("rep:ir:existing-nodes", IR, "edges name nodes that exist"),
    Requirement("rep:ir:schema", IR, "there is a JSON Schema of our own, which agrees with what is checked"),
    Requirement("rep:ir:messages", OURS, "every problem is reported at once, with its node and what would be right"),
    Requirement("rep:ir:validate-kinds", OURS, "`tm validate` reports step kinds that the runtime in use does not have"),
    Requirement("rep:ir:cycles", OURS, "a circle is refused"),
    Requirement("rep:ir:timeout-zero", IR, "a timeout of 0 is none"),
    Requirement("rep:ir:retry", IR, "retry.max counts the tries after the first"),
    Requirement("rep:ir:retry-assert", IR, "an assertion is tried again as its retry says"),
    Requirement("rep:ir:backoff", IR, "backoff_ms lies between two tries"),
    Requirement("rep:ir:edges", IR, "a step is followed along the edges of how it ended"),
    Requirement("rep:ir:references", IR, "`$input.a.b` and `$step.id.path` are replaced, anything else is a literal"),
    Requirement("rep:ir:scalars", IR, "numbers and flags may be spelled as texts"),
    Requirement("rep:ir:inputs", IR, "inputs are held against inputs_schema"),
    Requirement("rep:ir:inputs-free-form", IR, "of an inputs_schema only what is understood is checked"),
    Requirement("rep:ir:inputs-undeclared", IR, "inputs that are not declared are passed on"),
    Requirement("rep:ir:compiled", IR, "what we compile has texts for scalars, and a `finish` with an empty `with` at its end"),
    Requirement("rep:control:switch", IR, "`switch` goes by an input or a step's field, or to its default"),
    Requirement("rep:control:switch-shape", IR, "its cases and its edges agree, and an edge may name its case"),
    Requirement("rep:control:switch-compiled", IR, "`default: _DEFAULT`, as compilers write it, names that case"),
    Requirement("rep:control:emit", IR, "`dsl.emit` gives outputs"),
    Requirement("rep:control:finish", IR, "`finish` ends the run"),
    Requirement("rep:control:advertised", SETTLED, "our runtime has all three"),
    Requirement("rep:kinds:plugins", PROJECTS, "step kinds can be added by plugins, and are listed among the capabilities"),
    Requirement("rep:kinds:broken-plugin", PROJECTS, "a plugin that cannot be used is a clear error, and nothing runs"),
    Requirement("rep:kinds:listed", OURS, "`tm kinds` and the documentation list every kind with its inputs"),
    Requirement("rep:control:foreign", SETTLED, "they are driven for a runtime that has none"),
    Requirement("rep:manifest:form", IR, "a manifest is an array of entries with six fields, kinds sorted, and a hash"),
    Requirement("rep:manifest:relative", IR, "ir_path is meant from the manifest's folder, and leads nowhere else"),
    Requirement("rep:manifest:hash", IR, "inputs_schema_hash is `sha256:` and the hex of canonical JSON"),
    Requirement("rep:manifest:command", IR, "`tm runtime run --manifest M --flow NAME` prints flow, status, summary and events"),
)

AGREED = (
    Requirement("rep:settled:outputs", SETTLED, "outputs are in the summary, and in the event of their step"),
    Requirement("rep:settled:error", SETTLED, "a failed run has summary.error"),
    Requirement("rep:settled:cancelled", SETTLED, "a cancelled run is failed, and its error has the cause `Cancelled`"),
    Requirement("rep:settled:timeout", SETTLED, "one that took too long is 3001 with the cause `Timeout`"),
    Requirement("rep:settled:eof-at-once", SETTLED, "a runtime's end is noticed at once, not after a timeout"),
)

FREE_OF = (
    Requirement("rep:faults:polls", FAULTS, "a step of 50 ms takes few polls, not 318"),
    Requirement("rep:faults:imports", FAULTS, "the command loads what a run needs, and nothing heavy besides"),
    Requirement("rep:faults:engine-timeout", FAULTS, "there is an engine timeout"),
    Requirement("rep:faults:cache", FAULTS, "what a runtime said of itself is kept"),
    Requirement("rep:faults:variables", FAULTS, "the TRACE_MIND variables are set"),
    Requirement("rep:faults:switch", FAULTS, "`switch` is obeyed"),
    Requirement("rep:faults:retry", FAULTS, "retry is obeyed"),
    Requirement("rep:faults:timeouts", FAULTS, "timeouts are obeyed"),
    Requirement("rep:faults:exits", FAULTS, "there are more exit codes than 0 and 1"),
)

IN_THE_TOWER = (
    Requirement("rep:tower:session", TOWER, "a flow is a session of the daemon, with one run"),
    Requirement(
        "rep:tower:steps-are-calls", TOWER, "the flow is a call, each try of a step is a call inside it, and logs are its output"
    ),
    Requirement("rep:tower:report", TOWER, "what became of a flow is told in REP's words, the same whenever it is asked"),
    Requirement("rep:tower:no-talk", TOWER, "a flow takes no messages"),
    Requirement("rep:tower:refused", TOWER, "a flow that is not valid is refused with its problems, and begins no session"),
    Requirement("rep:tower:failed", TOWER, "a failed step fails the run, with its error"),
    Requirement(
        "rep:tower:runtime-broke",
        TOWER,
        "a runtime that breaks or lies is a failed run with its error, never a hang, and nothing of it is left",
    ),
    Requirement("rep:tower:lacks-a-kind", TOWER, "a runtime that lacks a step kind runs nothing, with exit code 3"),
    Requirement("rep:tower:timeout", TOWER, "the engine timeout ends a run"),
    Requirement("rep:tower:cancel", TOWER, "a flow can be cancelled"),
    Requirement("rep:tower:approval", TOWER, "`approval` waits until somebody decides, and gives who did"),
    Requirement("rep:tower:denied", TOWER, "a no fails the step"),
    Requirement("rep:tower:denied-and-stopped", TOWER, "a no that stops the run ends the flow, whatever its edges say"),
    Requirement("rep:tower:expired", TOWER, "a question that nobody decides in time fails the step"),
    Requirement("rep:tower:withdrawn", TOWER, "a step out of time takes its question back"),
    Requirement("rep:tower:agent", TOWER, "`agent.run` is done by a session of its own, with acceptance"),
    Requirement("rep:tower:agent-retry", TOWER, "another try of it is another session"),
    Requirement("rep:tower:cancel-agent", TOWER, "to cancel the flow cancels its agent"),
    Requirement("rep:tower:no-self-approval", TOWER, "what a flow starts cannot approve it, nor start another"),
    Requirement("rep:tower:secrets", TOWER, "secrets in inputs are not kept, and a flow that needs one after a restart says so"),
    Requirement(
        "rep:tower:restart",
        TOWER,
        "a flow that waits for an approval goes on after the daemon was killed or stopped, and does nothing twice",
    ),
    Requirement(
        "rep:tower:restart-agent", TOWER, "so does one that waits for an agent; an agent that was at work has failed its try"
    ),
    Requirement("rep:tower:restart-step", TOWER, "an ordinary step that was under way has failed its try"),
    Requirement("rep:tower:restart-plain", TOWER, "a flow that its runtime runs alone ends with the daemon"),
    Requirement("rep:tower:everywhere", TOWER, "push, pi, MiniCodex and relay show a flow, and each can decide in it"),
    Requirement("rep:tower:command", TOWER, "`tower flow run` makes a session where a daemon runs"),
    Requirement("rep:tower:same-object", TOWER, "and prints what a local run prints"),
    Requirement("rep:tower:exits", TOWER, "with REP's exit codes"),
    Requirement("rep:tower:detach", TOWER, "`--detach` prints the session and does not wait"),
    Requirement("rep:tower:waits", TOWER, "a flow that waits says so, and how to decide"),
    Requirement("rep:tower:interrupt", TOWER, "Ctrl-C cancels the session"),
    Requirement("rep:tower:standalone", TOWER, "our runtime does these steps through the daemon when others drive it"),
)

REQUIREMENTS = (*TALKING, *LIVES, *METHODS, *ERRORS, *EVENTS, *SURROUNDINGS, *FLOWS, *AGREED, *FREE_OF, *IN_THE_TOWER)
