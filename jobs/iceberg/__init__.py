"""The transactional Iceberg table that landing, destinations, events and maintenance stand on."""
