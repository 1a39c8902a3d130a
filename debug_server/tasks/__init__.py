"""Host tasks: agent work that an orchestrator submits, watches and cancels; each is a command in its own session.

Imported by surfaces and ``parts``; imports ``service``, ``config`` and ``model``. It has no queue, process or table of
its own: a task's state is that of its command and its session, in the words of its users.
"""

from debug_server.messages.tasks import RunnerSandbox, RunnerSubmit, RunnerTask, RunnerWorkspace, TaskList
from debug_server.tasks.tasks import Tasks

__all__ = ["RunnerSandbox", "RunnerSubmit", "RunnerTask", "RunnerWorkspace", "TaskList", "Tasks"]
