"""Relay on several nodes: each is a host, and whatever dials in to one of them can be reached from all."""
