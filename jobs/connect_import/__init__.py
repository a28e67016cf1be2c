"""Moving house: a Kafka Connect sink becomes a pipeline file, and its offsets are taken over (`batchmerge import`)."""
