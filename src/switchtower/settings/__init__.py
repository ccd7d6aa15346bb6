"""What settings are made of. The table of them is `switchtower.config`."""
