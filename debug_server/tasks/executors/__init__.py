"""From a task to the command that does it: one module for each executor."""

from debug_server.tasks.executors.base import Executor, Plan
from debug_server.tasks.executors.choose import Executors

__all__ = ["Executor", "Executors", "Plan"]
