"""Shared by the runner programs: reading the event, safe access to the folder, and the way they end."""
