"""The destination systems. Each is a `Destination` (`jobs.destinations.base`): one protocol, one behaviour suite."""
