"""The state of pipelines and their tables, for `batchmerge status` and the metrics."""
