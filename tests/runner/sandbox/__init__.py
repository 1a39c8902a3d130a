"""Levels of isolation on a machine with and without what they need."""
