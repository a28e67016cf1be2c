"""The batch-merge engine. Start with `jobs/protocol.py`: the batch protocol on one page."""

import os

# Spark deletes the folder of a session that was idle for 30 minutes while Python workers still have it as their current
# folder. Libraries that read the current folder when they are imported (pyiceberg) would fail there.
try:
    os.getcwd()
except FileNotFoundError:
    os.chdir("/")
