"""Sources of a trace that simulate no devices."""
