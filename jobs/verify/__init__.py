"""Checks: invariants that block what comes after, and drift that warns."""
