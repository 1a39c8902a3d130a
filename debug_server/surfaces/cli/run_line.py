"""The command line of ``debug-server run``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from debug_server.errors import DebugServerError
from debug_server.model import EnvironmentPlan
from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.environment_options import Extras, Groups, Manifests, Python, wanted_environment
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.limit_options import NO_LIMITS, LimitOptions, Require, with_limits
from debug_server.surfaces.cli.run import Shown, WorkspaceOptions, command_spec, report, run_command_line
from debug_server.surfaces.cli.variable_options import Secrets, Variables
from debug_server.surfaces.cli.words import listed, patch_bytes, refuse_without_repo

app = CommandsApp()

_PANEL = "Workspace"


@app.command(context_settings={"allow_interspersed_args": False})  # what follows the program is the program's
@with_limits
def run(
    context: typer.Context,
    argv: Annotated[list[str], typer.Argument(metavar="-- CMD [ARG]...", help="the program and its arguments")],
    env: Variables = None,
    secret: Secrets = None,
    repo: Annotated[
        str | None,
        typer.Option(
            "--repo",
            "--repository",
            metavar="REMOTE",
            help="run in a workspace of this git URL or path, not here",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    commit: Annotated[
        str | None, typer.Option(help="branch, tag or commit; default: HEAD", rich_help_panel=_PANEL)
    ] = None,
    patch: Annotated[
        Path | None, typer.Option(metavar="FILE", help="a patch to apply; - is stdin", rich_help_panel=_PANEL)
    ] = None,
    manifest: Manifests = None,
    python: Python = None,
    extra: Extras = None,
    group: Groups = None,
    artifact: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="files to keep; may be repeated", rich_help_panel=_PANEL)
    ] = None,
    cwd: Annotated[
        Path | None, typer.Option(help="the folder to run in; with --repo, inside the workspace", metavar="FOLDER")
    ] = None,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="give the command a terminal")] = False,
    stdin: Annotated[
        bool, typer.Option("--stdin", "-i", help="pass on what you type; a pipe or a file is always passed on")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="a settings file; default: config/runner.toml")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="do not print how the command ended")] = False,
    limit_options: LimitOptions = NO_LIMITS,
    require: Require = None,
) -> None:
    """Run a command on this machine. Output and exit status are the command's.

    Example: debug-server run --timeout 15m -- pytest -q
    """
    shown = Shown(quiet=quiet, as_json=invocation(context).as_json)
    try:
        command = command_spec(
            argv,
            limits=limit_options.limits(),
            require=listed(require),
            isolation=limit_options.isolation,
            network=limit_options.network,
            variables=env or [],
            secrets=secret or [],
            tty=tty,
            stdin=stdin,
            cwd=cwd,
        )
        checkout = _checkout(repo, commit, patch, wanted_environment(manifest, python, extra, group), artifact or [])
    except DebugServerError as error:
        raise typer.Exit(report(error, as_json=shown.as_json)) from error
    open_local = partial(invocation(context).programs.open_local, config=config)
    raise typer.Exit(run_command_line(open_local, command, checkout, shown))


def _checkout(
    repo: str | None,
    commit: str | None,
    patch: Path | None,
    environment: EnvironmentPlan | None,
    artifacts: list[str],
) -> WorkspaceOptions | None:
    if repo is not None:
        return WorkspaceOptions(
            repository=repo,
            commit=commit or "HEAD",
            patch=patch_bytes(patch),
            environment=environment,
            artifacts=artifacts,
        )
    wanted = environment or EnvironmentPlan()
    refuse_without_repo(
        {
            "--commit": commit,
            "--patch": patch,
            "--manifest": wanted.manifests,
            "--python": wanted.python,
            "--extra": wanted.extras,
            "--group": wanted.groups,
            "--artifact": artifacts,
        }
    )
    return None
