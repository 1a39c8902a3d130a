"""A build whose files are what their packages list: what somebody wrote into the tool's cache is never sealed.

Installed files are hard links into uv's cache, so one that was changed in place in some environment would come with
every later one. A build that differs from its packages' RECORDs is made again past the cache.
"""

from __future__ import annotations

from dataclasses import replace

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environments.inventory import Inventory, describe, misrecorded, owners, take_inventory
from debug_server.runner.environments.layout import delete_tree
from debug_server.runner.environments.plan import BuildPlan
from debug_server.runner.environments.processes import Workbench
from debug_server.runner.environments.seal import mark


def build_checked(plan: BuildPlan, bench: Workbench) -> Inventory:
    """Fill ``bench.target`` and list its files; EnvironmentBuildError if they are not what the packages hold."""
    inventory, wrong = _build(plan, bench)
    if not wrong:
        return inventory
    packages = owners(bench.target, set(wrong), inventory.entries)
    named = ", ".join(packages)
    bench.say(
        f"[debug-server] environment: {_said(wrong)}: building again without the cache, and cleaning {named} there"
    )
    plan.builder.forget(packages, bench)
    delete_tree(bench.target)
    inventory, again = _build(plan, replace(bench, past_cache=True))
    if again == wrong:  # nobody else could reach these: the packages came like this
        bench.say(
            f"[debug-server] environment: the list that came with {named} is wrong; its files are taken as they are"
        )
    elif again:
        raise EnvironmentBuildError(
            f"{_said(again)}, also when it is installed past the cache: does something write into "
            f"{bench.target.parent}? Clean the build tool's cache (`uv cache clean`) and ask again"
        )
    return inventory


def _build(plan: BuildPlan, bench: Workbench) -> tuple[Inventory, dict[str, str]]:
    plan.builder.build(plan, bench)
    mark(bench.target)
    inventory = take_inventory(bench.target)
    return inventory, misrecorded(bench.target, inventory) if plan.builder.keeps_records else {}


def _said(wrong: dict[str, str]) -> str:
    return describe(dict.fromkeys(wrong, "is not what its package lists"))
