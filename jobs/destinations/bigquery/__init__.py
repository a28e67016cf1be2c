"""BigQuery as a destination: see `destination` for the protocol."""
