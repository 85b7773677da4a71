"""Other sources of a trace than a fleet."""
