"""Figures of the product against their peers, measured in the same run: ``python -m benchmarks``."""
