"""Decoding of record keys and values from bytes to Arrow values of a declared type.

Runs inside Spark's Python workers: imports nothing but pyarrow and the error tree.
"""
