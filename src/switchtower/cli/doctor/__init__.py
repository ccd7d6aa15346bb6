"""What `tower doctor` looks at. Each room yields findings; nothing here changes anything, and no look breaks the others.

MCP servers for the command line: which there are, and whether one can be started, tried out for a moment."""
