"""Pools, by which one run at a time writes a table: how steps claim them and wait for them."""
