"""Flows: graphs of steps that a runtime executes. `ir` reads and checks them."""
