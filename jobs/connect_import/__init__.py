"""Turns a Kafka Connect sink into a pipeline file, which continues at the sink's offsets (`batchmerge import`)."""
