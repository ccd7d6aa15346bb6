"""The MiniCodex WebSocket protocol, version 1: server-authoritative sessions for thin clients."""
