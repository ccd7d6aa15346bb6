"""Relay over HTTP: the hub's endpoints for apps, and the host's own on its owner's Unix socket. Its modules are loaded when a
listener needs them."""
