"""Tables of one DuckDB file as destinations of Batchmerge: the worked example of docs/write-a-destination.md."""
