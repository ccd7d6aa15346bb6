"""Backups (contents, creation while a daemon runs, restore) and stores: locating one from the command line, and opening it for
exclusive use."""
