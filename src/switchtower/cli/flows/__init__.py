"""What the commands of `tower flow` do. The commands themselves are `cli/commands/flow.py`."""
