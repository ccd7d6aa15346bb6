"""A host's side of relay: requests about the runs on this host."""
