"""Events to runners: ``runners.yml`` and ``repos.yml``, routing, the stream of what runners do.

Imported by surfaces and ``parts``; imports ``service`` and below. It has no queue, timer, process or table of its own:
an event becomes a run of the engine, a schedule is the engine's, and the stream tells the store's events and the logs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from debug_server.dispatch.manager import RunnerManager

__all__ = ["RunnerManager"]


def __getattr__(name: str) -> Any:
    # Loaded when asked for: the program that makes a grpc runner's call is in this package and needs none of it.
    if name == "RunnerManager":
        from debug_server.dispatch.manager import RunnerManager

        return RunnerManager
    raise AttributeError(name)
