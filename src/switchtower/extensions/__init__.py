"""Slash commands that are programs: what a stranger writes them against, who finds them, and the two that we ship."""
