"""Builds an environment and compares its files with its packages' RECORDs, so that no changed file is sealed.

Installed files are hard links into uv's cache, so a file that was changed in place in one environment would be part of
every later one. A build that differs from the RECORDs is repeated without the cache.
"""

from __future__ import annotations

from dataclasses import replace

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environments.build_context import BuildContext
from debug_server.runner.environments.build_plan import BuildPlan
from debug_server.runner.environments.inventory import (
    Inventory,
    describe,
    distributions_of,
    misrecorded,
    take_inventory,
)
from debug_server.runner.environments.layout import delete_tree
from debug_server.runner.environments.seal import write_marker


def build_checked(plan: BuildPlan, context: BuildContext) -> Inventory:
    """Build ``context.target`` and list its files; EnvironmentBuildError if they differ from those of the packages."""
    inventory, wrong = _build(plan, context)
    if not wrong:
        return inventory
    packages = distributions_of(context.target, set(wrong), inventory.entries)
    named = ", ".join(packages)
    context.write_line(
        f"[debug-server] environment: {_describe_wrong(wrong)}: building again without the cache, "
        f"and removing {named} from it"
    )
    plan.builder.drop_from_cache(packages, context)
    delete_tree(context.target)
    inventory, again = _build(plan, replace(context, bypass_cache=True))
    if changed := {path: digest for path, digest in again.items() if wrong.get(path) != digest}:
        raise EnvironmentBuildError(
            f"{_describe_wrong(changed)}, even when installed without the cache: check that no other program writes "
            f"into {context.target.parent}, clean the build tool's cache (`uv cache clean`) and retry"
        )
    if again:  # these files are the same without the cache, so their RECORDs are wrong
        liars = ", ".join(distributions_of(context.target, set(again), inventory.entries))
        context.write_line(f"[debug-server] environment: the RECORD of {liars} is wrong; its files are accepted")
    return inventory


def _build(plan: BuildPlan, context: BuildContext) -> tuple[Inventory, dict[str, str]]:
    plan.builder.build(plan, context)
    write_marker(context.target)
    inventory = take_inventory(context.target)
    return inventory, misrecorded(context.target, inventory) if plan.builder.keeps_records else {}


def _describe_wrong(wrong: dict[str, str]) -> str:
    return describe(dict.fromkeys(wrong, "is not what its package lists"))
