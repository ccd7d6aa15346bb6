"""Slash commands that are programs: the API that plugin authors use, the loader, and the two extensions that we ship."""
