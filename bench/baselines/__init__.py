"""What a row is compared with: the least program that does the same visible work, each a process of its own."""
