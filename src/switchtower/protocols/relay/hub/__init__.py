"""The hub's side of relay: apps, hosts, and the runs of all of them."""
