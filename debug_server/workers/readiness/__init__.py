"""Readiness probes of workers: one module for each kind, with one interface."""

from debug_server.workers.readiness.probe import Probe, ProbeContext, ProbeFailedError
from debug_server.workers.readiness.probe_classes import open_probe

__all__ = ["Probe", "ProbeFailedError", "ProbeContext", "open_probe"]
