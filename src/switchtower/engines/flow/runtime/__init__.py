"""Executes flows: runs a checked graph of steps, concurrently as far as the graph allows. The step kinds do the work; the rest of
this package accesses no file, no network and no process, and knows nothing of REP's wire format.

`host` is the entry point for a process that executes one run. `run` loads a document, decides which nodes may start and executes
control nodes; `executor` waits for its steps, `steps` runs the attempts of one node, and `event_buffer` keeps events until a
client polls. `kinds` has everything that steps can do.
"""
