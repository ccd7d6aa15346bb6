"""Relay over HTTP: the hub's endpoints for apps, and the host's own on its owner's Unix socket. It is loaded with the first
request."""
