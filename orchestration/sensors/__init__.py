"""Sensors: what starts runs and notifies people, beside the schedules."""
