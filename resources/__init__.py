"""One module per outside system. Nothing here knows what a pipeline is."""
