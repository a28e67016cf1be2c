"""What Dagster sees, and the command line. Imports nothing here: `batchmerge --help` has to be quick."""
