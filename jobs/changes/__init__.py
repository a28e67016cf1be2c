"""Landed changes as destinations read them."""
