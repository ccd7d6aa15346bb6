"""MCP servers for the command line: which there are, and whether one can be started, tried out for a moment."""
