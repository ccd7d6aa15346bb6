"""Clients that put a server under load: each a process of its own, and the same code for the daemon and for its baseline."""
