"""Stores as a command line names them: which one is meant, and how it is opened while nobody else uses it."""
