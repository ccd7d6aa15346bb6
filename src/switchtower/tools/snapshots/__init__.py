"""A workspace's files as they were at one moment, kept as git objects: taking them down, comparing them, bringing them back.

Everything in here blocks and belongs on a thread; `checkpoints` is the door. Nothing here reads a repository's own
configuration, attributes or hooks while it touches objects or refs, so a hostile repository has nothing to say.
"""
