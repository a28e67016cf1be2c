"""Proposed columns, inferred from a topic's records."""
