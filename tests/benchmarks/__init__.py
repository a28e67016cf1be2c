"""Benchmarks: they print figures and judge nothing. `make bench`, or `python -m tests.benchmarks NAME…`."""
