"""Frozen values and pure rules; imports the standard library and ``errors`` only."""

from debug_server.model.claims import Claim
from debug_server.model.command import Command, CommandStatus, check_transition, status_for
from debug_server.model.exit import ExitReason, ExitRecord
from debug_server.model.limits import Limits, parse_size
from debug_server.model.lists import check_argv, check_list
from debug_server.model.names import check_name
from debug_server.model.new_command import NewCommand
from debug_server.model.plans import BranchWorktreePlan, CommandPlan, EnvironmentPlan, SessionPlan, WorkerIdentity
from debug_server.model.records import (
    Artifact,
    ArtifactKind,
    Cleanup,
    DebuggerState,
    DueTime,
    Event,
    NewEvent,
    Notice,
    Repository,
    Schedule,
    Session,
    SessionStatus,
    Token,
    Worktree,
    WorktreeStatus,
)

__all__ = [
    "Artifact",
    "ArtifactKind",
    "BranchWorktreePlan",
    "Claim",
    "Cleanup",
    "Command",
    "CommandPlan",
    "CommandStatus",
    "DebuggerState",
    "DueTime",
    "EnvironmentPlan",
    "Event",
    "ExitReason",
    "ExitRecord",
    "Limits",
    "NewCommand",
    "NewEvent",
    "Notice",
    "Repository",
    "Schedule",
    "Session",
    "SessionPlan",
    "SessionStatus",
    "Token",
    "WorkerIdentity",
    "Worktree",
    "WorktreeStatus",
    "check_argv",
    "check_list",
    "check_name",
    "check_transition",
    "parse_size",
    "status_for",
]
