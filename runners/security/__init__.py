"""The parts of the security runner."""
