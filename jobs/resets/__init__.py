"""Resets of offsets: a person decides where a pipeline continues, or which other one it takes over from."""
