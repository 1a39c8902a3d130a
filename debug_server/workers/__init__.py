"""Long-lived processes: policy (backoff, budget, readiness, drain) over the runner's keeper in relay mode.

Imports runner and what is below it; starts no process itself. Used by service, gateway and the composition root.
"""

from debug_server.workers.codex import PROTOCOL, CodexConversation, CodexOptions, codex_handshake
from debug_server.workers.codex_program import check_codex
from debug_server.workers.codex_turn import Turn, TurnRequest
from debug_server.workers.interface import Generation, SupervisedWorker
from debug_server.workers.spec import HandshakeReadiness, WorkerSpec, WorkerTiming
from debug_server.workers.state import LivenessReason, ReadinessReason
from debug_server.workers.status import absent_status, restart_advice
from debug_server.workers.supervisor import ServiceSupervisor
from debug_server.workers.turn_events import Ended, Text, TokenUsage, ToolCall, TurnEvent
from debug_server.workers.workers import Workers

__all__ = [
    "PROTOCOL",
    "CodexConversation",
    "CodexOptions",
    "Ended",
    "Generation",
    "HandshakeReadiness",
    "LivenessReason",
    "ReadinessReason",
    "ServiceSupervisor",
    "SupervisedWorker",
    "Text",
    "TokenUsage",
    "ToolCall",
    "Turn",
    "TurnEvent",
    "TurnRequest",
    "WorkerSpec",
    "WorkerTiming",
    "Workers",
    "absent_status",
    "check_codex",
    "codex_handshake",
    "restart_advice",
]
