"""Snapshots of a workspace's files, stored as git objects: they are taken, compared and restored.

Everything in this package blocks and belongs on a thread; `checkpoints` is the entry point. Nothing here reads a repository's own
configuration, attributes or hooks while it accesses objects or refs, so a hostile repository has no influence.
"""
