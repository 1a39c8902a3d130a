"""Host tasks: agent work that an orchestrator submits, watches and cancels; each is a command of the engine.

Imported by surfaces and ``app`` level; imports ``service`` and below. A task has no queue, process or table of its own:
its state is that of its command and its session, seen through the words of its users.
"""

from debug_server.tasks.models import RunnerSandbox, RunnerSubmit, RunnerTask, RunnerWorkspace, TaskList
from debug_server.tasks.tasks import Tasks

__all__ = ["RunnerSandbox", "RunnerSubmit", "RunnerTask", "RunnerWorkspace", "TaskList", "Tasks"]
