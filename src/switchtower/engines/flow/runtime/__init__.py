"""Executes flows: takes a checked graph of steps and runs it, as far as the graph allows side by side. What a step does is
its kind's business; this room itself touches no file, no network and no process, and knows nothing of REP's wire.

`hosting` is the door for a process that executes one run, `reading` makes a flow of a document. `run` is the run itself and
`executor` waits for its steps; `graph` says what may start, `steps` tries one node, `control` directs, and `events` keeps what
is told until somebody polls. `kinds` has all that steps can do.
"""
