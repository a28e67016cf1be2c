"""The batch-merge engine. Start with `jobs/protocol.py`: the batch protocol on one page."""
