"""Replays: of landed batches, and from Kafka."""
