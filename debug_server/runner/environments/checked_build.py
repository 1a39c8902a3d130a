"""A build whose files are what their packages list: what somebody wrote into the tool's cache is never sealed.

Installed files are hard links into uv's cache, so one that was changed in place in some environment would come with
every later one. A build that differs from its packages' RECORDs is made again past the cache.
"""

from __future__ import annotations

from dataclasses import replace

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environments.build_context import BuildContext
from debug_server.runner.environments.build_plan import BuildPlan
from debug_server.runner.environments.inventory import Inventory, describe, misrecorded, owners, take_inventory
from debug_server.runner.environments.layout import delete_tree
from debug_server.runner.environments.seal import write_marker


def build_checked(plan: BuildPlan, context: BuildContext) -> Inventory:
    """Fill ``context.target`` and list its files; EnvironmentBuildError if they are not what the packages hold."""
    inventory, wrong = _build(plan, context)
    if not wrong:
        return inventory
    packages = owners(context.target, set(wrong), inventory.entries)
    named = ", ".join(packages)
    context.say(
        f"[debug-server] environment: {_describe_wrong(wrong)}: building again without the cache, "
        f"and removing {named} from it"
    )
    plan.builder.drop_from_cache(packages, context)
    delete_tree(context.target)
    inventory, again = _build(plan, replace(context, bypass_cache=True))
    if again == wrong:  # nobody else could reach these: the packages came like this
        context.say(
            f"[debug-server] environment: the list that came with {named} is wrong; its files are taken as they are"
        )
    elif again:
        raise EnvironmentBuildError(
            f"{_describe_wrong(again)}, also when it is installed past the cache: does something write into "
            f"{context.target.parent}? Clean the build tool's cache (`uv cache clean`) and ask again"
        )
    return inventory


def _build(plan: BuildPlan, context: BuildContext) -> tuple[Inventory, dict[str, str]]:
    plan.builder.build(plan, context)
    write_marker(context.target)
    inventory = take_inventory(context.target)
    return inventory, misrecorded(context.target, inventory) if plan.builder.keeps_records else {}


def _describe_wrong(wrong: dict[str, str]) -> str:
    return describe(dict.fromkeys(wrong, "is not what its package lists"))
