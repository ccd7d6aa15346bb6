"""The Relay protocol: apps and hosts around one hub."""
