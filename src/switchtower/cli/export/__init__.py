"""Exports a session as a document: it folds events into blocks one by one and renders the blocks as Markdown or HTML."""
