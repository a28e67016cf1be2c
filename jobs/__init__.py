"""The batch-merge engine. Start with `jobs/protocol.py`: the batch protocol on one page."""

import os

# Spark deletes the folder of a session that was idle for 30 minutes, and its Python workers are left in it. Libraries
# that look for the current folder when they are imported (pyiceberg) would fail there.
try:
    os.getcwd()
except FileNotFoundError:
    os.chdir("/")
