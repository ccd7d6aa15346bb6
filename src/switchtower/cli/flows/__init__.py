"""The work of the `tower flow` commands, which `cli/commands/flow.py` declares."""
