"""A session as a document: its events folded into blocks one after the other, and the blocks written as Markdown or HTML."""
