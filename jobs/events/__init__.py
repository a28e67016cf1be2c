"""The control topic: what a pipeline tells others about its batches, and how they read it (docs/events.md)."""
