"""What the tests of the protocol share: records, an independent model, and a driver process that can be killed."""
