"""REP, the protocol between an orchestrator of flows and a runtime that executes them."""
