"""What `tower config` is made of: the file's text, where each value comes from, and how a change is checked and written."""
