"""The building blocks of settings. The table of settings is `switchtower.config`."""
