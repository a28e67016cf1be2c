"""Three replays: of landed batches, from Kafka, of dead letters."""
