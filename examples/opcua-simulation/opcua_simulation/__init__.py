"""Step kinds for Switchtower flows that simulate an OPC UA server, and one that applies a policy. Nothing is connected to."""
