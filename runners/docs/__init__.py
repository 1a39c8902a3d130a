"""The parts of the docs runner: pages and versions."""
