"""The set-up at a first start: what was found, what is asked about it, a try, and the file. Prints and asks nothing itself, so
that a command line and a terminal UI put the same questions."""
