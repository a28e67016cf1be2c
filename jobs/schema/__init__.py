"""Columns and their types. Arrow's types are the product's type system; every system is mapped from and to them."""
