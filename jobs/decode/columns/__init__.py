"""Decodes records of a binary format column by column ("in step"): one field of all records after the other, by numpy.

A reader is made once per schema. It reads records as usual writers write them, and gives up all others (broken or
unusual ones), which the row decoder then decodes one by one: it decides.
"""
