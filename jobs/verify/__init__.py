"""Checks: invariants, which block downstream assets, and drift, which only warns."""
