"""The ways in: each decodes, calls and encodes. Surfaces know nothing of each other; ``app`` wires them."""
