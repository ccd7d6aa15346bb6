"""The terminal UI: sessions, what they say and what they ask, on one screen. Knows the daemon only through `client`."""
