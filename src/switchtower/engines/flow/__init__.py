"""Flows: graphs of steps that a runtime executes. `ir` reads and checks them.

What an orchestrator of flows knows of its project: the runtime to use, what runtimes can do, and control nodes."""
