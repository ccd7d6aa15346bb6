"""A session as a page that anybody can read: one file, no scripts, nothing from elsewhere."""

from switchtower.protocols.pi.view.export.document import page

__all__ = ["page"]
