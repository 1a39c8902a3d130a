"""The interfaces for callers: each decodes, calls the service and encodes. Surfaces do not import each other."""
