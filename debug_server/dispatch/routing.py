"""Routes an event to the runners that handle it; the labels of a card play no part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debug_server.dispatch.globs import matches
from debug_server.dispatch.issue_event import IssueEvent
from debug_server.dispatch.runners_file import PRIORITIES, Runner, RunnersFile, Trigger

UNKNOWN = "unknown"
SKILLS = {
    "created": "card.create",
    "wip": "card.move",
    "closed": "card.close",
    "tick": "verify.run",
    "probe": "probe.sync",
    "model": "model.build",
    "doc": "doc.sync",
    "audit": "cred.audit",
    "plan": "sprint.plan",
    "retro": "sprint.retro",
    "ignore": "git.ignore",
    "lock": "git.lock",
    "revert": "git.revert",
}
_CHANGES = ("push", "pr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One runner for one event."""

    runner: Runner
    skill: str
    trigger: str  # event, push, pr, dispatch or schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRoute:
    """Why no runner handles the event."""

    runner: str  # or "unknown"
    skill: str
    reason: str


def skill_of(event_type: str) -> str:
    """The skill for an event type; a type that is not mapped is a skill itself."""
    return SKILLS.get(event_type, event_type)


def routes(event: IssueEvent, runners: RunnersFile, *, trigger: str = "event") -> list[Route | NoRoute]:
    """The runners for the event, highest priority first; or why there is none."""
    if event.event_type in _CHANGES:
        found = sorted(_triggered(event, runners), key=lambda route: -_priority(route))
        return list(found) or [NoRoute(runner=UNKNOWN, skill="", reason=_no_trigger(event))]
    if event.event_type == "dispatch":
        return [_dispatched(event, runners)]
    skill = skill_of(event.event_type)
    return [_route(runners.runner_for(skill), skill, trigger, event)]


def _route(runner: Runner | None, skill: str, trigger: str, event: IssueEvent) -> Route | NoRoute:
    if runner is None:
        return NoRoute(runner=UNKNOWN, skill=skill, reason=f"no runner has the skill {skill!r}")
    if not runner.serves(event.repo_name):
        reason = f"runner {runner.name} does not serve {event.repo_name}: its repos are {', '.join(runner.repos or ())}"
        return NoRoute(runner=runner.name, skill=skill, reason=reason)
    return Route(runner=runner, skill=skill, trigger=trigger)


def _triggered(event: IssueEvent, runners: RunnersFile) -> Iterator[Route]:
    for runner in runners.runners.values():
        if not runner.serves(event.repo_name):
            continue
        if any(
            trigger.type == event.event_type and _matches_paths(trigger, event.paths) for trigger in runner.triggers
        ):
            yield Route(runner=runner, skill=runner.skills[0] if runner.skills else "", trigger=event.event_type)


def _matches_paths(trigger: Trigger, paths: tuple[str, ...]) -> bool:
    return not trigger.paths or any(matches(pattern, path) for pattern in trigger.paths for path in paths)


def _dispatched(event: IssueEvent, runners: RunnersFile) -> Route | NoRoute:
    """``field`` names a runner with a dispatch trigger, or one of its skills."""
    runner = runners.runners.get(event.field) or runners.runner_for(event.field)
    if runner is None:
        reason = f"field {event.field!r} names neither a runner nor a skill"
        return NoRoute(runner=UNKNOWN, skill=event.field, reason=reason)
    if not any(trigger.type == "dispatch" for trigger in runner.triggers):
        reason = f"runner {runner.name} has no trigger of type dispatch"
        return NoRoute(runner=runner.name, skill=event.field, reason=reason)
    skill = event.field if event.field in runner.skills else (runner.skills[0] if runner.skills else "")
    return _route(runner, skill, "dispatch", event)


def _priority(route: Route) -> int:
    return PRIORITIES[route.runner.priority]


def _no_trigger(event: IssueEvent) -> str:
    return f"no runner of {event.repo_name} has a {event.event_type} trigger for {len(event.paths)} changed paths"
