"""A session as a page that anybody can read: one file, no scripts, nothing from elsewhere."""
