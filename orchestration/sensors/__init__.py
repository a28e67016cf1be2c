"""Sensors: what starts runs and tells people, beside the schedules."""
