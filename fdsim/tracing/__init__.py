"""Measured availability and statistics of traces."""
