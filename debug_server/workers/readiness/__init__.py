"""How a worker says that it is ready, and later that it still answers: one file for each kind, one port for all."""

from debug_server.workers.readiness.probe import Probe, ProbeContext, ProbeFailedError
from debug_server.workers.readiness.table import open_probe

__all__ = ["Probe", "ProbeFailedError", "ProbeContext", "open_probe"]
