"""Flows: graphs of steps that a runtime executes. `ir` parses and checks them, `runtime` executes them, and `engine` runs them as
sessions.
"""
