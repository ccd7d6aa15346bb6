"""The daemon as a service of the user's own: a systemd user unit, or a launchd agent on macOS."""
