"""What `tower config` is made of: the file's text, where each value comes from, and how a change is checked and written.

The set-up at a first start: what was found, what is asked about it, a try, and the file. Prints and asks nothing itself, so
that a command line and a terminal UI put the same questions."""
