"""Events to runners: ``runners.yml`` and ``repos.yml``, routing, and the stream of events and runs.

Imported by surfaces and ``parts``; imports ``service``, ``config``, ``disk`` and ``model``. It has no queue, timer,
process or table of its own: it asks the service for runs and schedules, and the stream reads stored events and logs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from debug_server.dispatch.runner_manager import RunnerManager

__all__ = ["RunnerManager"]


def __getattr__(name: str) -> Any:
    # Loaded on demand: ``call``, the program that makes a grpc runner's call, does not need it.
    if name == "RunnerManager":
        from debug_server.dispatch.runner_manager import RunnerManager

        return RunnerManager
    raise AttributeError(name)
