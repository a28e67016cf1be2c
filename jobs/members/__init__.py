"""Members of a pipeline, which land and are merged side by side: one for each topic (`for_each`), or for each table
name that records bring (`new_tables`)."""
