"""A host's link to its hub: it connects, sends the events of the runs on this host, and executes the hub's requests."""
