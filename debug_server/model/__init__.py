"""Frozen values and pure rules; imports the standard library and ``errors`` only."""

from debug_server.model.claims import Claim
from debug_server.model.command import Command, CommandStatus, check_transition, status_for
from debug_server.model.command_search import CommandSearch, FoundCommand
from debug_server.model.command_spec import CommandSpec
from debug_server.model.durations import parse_duration
from debug_server.model.exit import ExitReason, ExitRecord
from debug_server.model.isolation import LEVELS, NETWORKS
from debug_server.model.limits import LIMITS, Limit, Limits, Unit, parse_size
from debug_server.model.lists import check_argv, check_list
from debug_server.model.log_chunk import LogChunk
from debug_server.model.names import check_name, without_credentials
from debug_server.model.new_command import NewCommand
from debug_server.model.plans import (
    UNCOMMITTED_PATCH,
    BranchWorktreePlan,
    CommandPlan,
    EnvironmentPlan,
    SessionPlan,
    WorkerIdentity,
)
from debug_server.model.queued_run import QueuedRun
from debug_server.model.records import (
    Artifact,
    ArtifactKind,
    Cleanup,
    DebuggerState,
    DueTime,
    Event,
    EventHead,
    NewEvent,
    Notice,
    OutgoingMessage,
    Repository,
    Schedule,
    Session,
    SessionStatus,
    Token,
    Worktree,
    WorktreeStatus,
)
from debug_server.model.request_key import RequestKey

__all__ = [
    "LEVELS",
    "LIMITS",
    "NETWORKS",
    "UNCOMMITTED_PATCH",
    "Artifact",
    "ArtifactKind",
    "BranchWorktreePlan",
    "Claim",
    "Cleanup",
    "Command",
    "CommandPlan",
    "CommandSearch",
    "CommandSpec",
    "CommandStatus",
    "DebuggerState",
    "DueTime",
    "EnvironmentPlan",
    "Event",
    "EventHead",
    "ExitReason",
    "ExitRecord",
    "FoundCommand",
    "Limit",
    "Limits",
    "LogChunk",
    "NewCommand",
    "NewEvent",
    "Notice",
    "OutgoingMessage",
    "QueuedRun",
    "Repository",
    "RequestKey",
    "Schedule",
    "Session",
    "SessionPlan",
    "SessionStatus",
    "Token",
    "Unit",
    "WorkerIdentity",
    "Worktree",
    "WorktreeStatus",
    "check_argv",
    "check_list",
    "check_name",
    "check_transition",
    "parse_duration",
    "parse_size",
    "status_for",
    "without_credentials",
]
