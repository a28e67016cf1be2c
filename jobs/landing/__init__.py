"""Landing: records of a batch become one snapshot of the intermediate table."""
