"""Automation: sensors, schedules, jobs, and the reconciler."""
