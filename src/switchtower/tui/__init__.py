"""The terminal UI: sessions, transcripts, approvals and dialogs on one screen. It knows the daemon only through `client`."""
