"""The control topic: the events that a pipeline publishes about its batches, and how to read them (docs/events.md)."""
