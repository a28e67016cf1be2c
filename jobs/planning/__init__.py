"""Planning: which offsets the next batch reads, and what a run would do."""
