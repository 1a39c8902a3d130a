"""The parts of the example probe: its settings, where repositories are, and the snapshots it keeps of them."""
