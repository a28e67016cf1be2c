"""The transactional Iceberg table that landing, destinations, events and maintenance stand on."""

# What the intermediate table is, whatever kinds the destinations are of.
FORMAT = "iceberg"
