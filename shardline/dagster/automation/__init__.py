"""Sensors, schedules, jobs and the reconciler."""
