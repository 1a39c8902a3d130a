"""The probe class of each readiness declaration."""

from __future__ import annotations

from debug_server.workers import spec
from debug_server.workers.readiness.descriptor import FdProbe
from debug_server.workers.readiness.handshake import HandshakeProbe
from debug_server.workers.readiness.notify import NotifyProbe
from debug_server.workers.readiness.polling import ExecProbe, HttpProbe
from debug_server.workers.readiness.probe import Probe, ProbeContext
from debug_server.workers.readiness.stdout import StdoutProbe

_KINDS: dict[type, type[Probe]] = {
    spec.HandshakeReadiness: HandshakeProbe,
    spec.StdoutReadiness: StdoutProbe,
    spec.NotifyReadiness: NotifyProbe,
    spec.FdReadiness: FdProbe,
    spec.HttpReadiness: HttpProbe,
    spec.ExecReadiness: ExecProbe,
}


def open_probe(context: ProbeContext) -> Probe:
    """Create and open the probe of one run."""
    probe = _KINDS[type(context.spec.readiness)](context)
    probe.open()
    return probe
