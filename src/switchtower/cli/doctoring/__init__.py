"""What `tower doctor` looks at. Each room yields findings; nothing here changes anything, and no look breaks the others."""
