"""Backups: what goes into one, how it is made while a daemon runs, and how it comes back. One file, for the owner alone."""
