"""Files that people write, as YAML that pydantic models judge: every mistake at once, each with line and column."""
