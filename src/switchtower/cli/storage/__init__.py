"""Backups: what goes into one, how it is made while a daemon runs, and how it comes back. One file, for the owner alone.

Stores as a command line names them: which one is meant, and how it is opened while nobody else uses it."""
