"""``debug-server plan``: what ``run --repo`` would use, without building or running anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.environment_options import Extras, Groups, Manifests, Python, wanted_environment
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.words import patch_bytes

if TYPE_CHECKING:
    from debug_server.service.foreground import PlanReply

app = CommandsApp()


@app.command()
def plan(
    context: typer.Context,
    repo: Annotated[str, typer.Option("--repo", "--repository", metavar="REMOTE", help="a git URL or path")] = ".",
    commit: Annotated[str, typer.Option(help="branch, tag or commit")] = "HEAD",
    patch: Annotated[Path | None, typer.Option(metavar="FILE", help="a patch to apply; - is stdin")] = None,
    manifest: Manifests = None,
    python: Python = None,
    extra: Extras = None,
    group: Groups = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="a settings file; default: config/runner.toml")
    ] = None,
) -> None:
    """Show the environment that run --repo would use. Nothing is built or run.

    Example: debug-server plan --repo https://github.com/pallets/click
    """
    call = invocation(context)
    wanted = wanted_environment(manifest, python, extra, group)
    with call.programs.open_local(config=config) as local:
        found = local.foreground.plan(
            repo,
            commit=commit,
            patch=None if patch is None else patch_bytes(patch),
            environment=wanted,
        )
    call.output().result(_text(found), found)


def _text(found: PlanReply) -> str:
    planned = found.environment
    lines = [f"commit: {found.commit_sha[:12]} of {found.repository}"]
    if planned.fingerprint is None:
        lines.append("environment: none, the programs of this machine")
    else:
        lines.append(f"environment: {planned.chosen or ', '.join(planned.manifests) or 'nothing but the interpreter'}")
        reason = f", {planned.python_reason}" if planned.python_reason else ""
        lines.append(f"python: {planned.python}{reason}")
        for name, items in (("extras", planned.extras), ("groups", planned.groups), ("packages", planned.packages)):
            lines += [f"{name}: {', '.join(items)}"] if items else []
        lines.append(f"builder: {planned.builder}")
        lines.append(f"fingerprint: {planned.fingerprint[:20]} ({'built' if planned.built else 'not built yet'})")
    return "\n".join([*lines, *(f"note: {note}" for note in planned.notes)])
