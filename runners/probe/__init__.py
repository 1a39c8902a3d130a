"""The parts of the example probe: its settings, the paths of repositories, and their snapshots."""
