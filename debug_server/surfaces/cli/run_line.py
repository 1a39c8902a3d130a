"""The command line of ``debug-server run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from debug_server.errors import DebugServerError, InvalidInputError
from debug_server.model import EnvironmentPlan
from debug_server.surfaces.cli.environment_options import Extras, Groups, Manifests, Python, wanted_environment
from debug_server.surfaces.cli.invocation import invocation
from debug_server.surfaces.cli.limit_options import NO_LIMITS, LimitOptions, Require, with_limits
from debug_server.surfaces.cli.outcome import FAILURE
from debug_server.surfaces.cli.output import harmless
from debug_server.surfaces.cli.run import CheckoutOptions, command_spec, run_command_line
from debug_server.surfaces.cli.secret_options import Secrets
from debug_server.surfaces.cli.words import listed

app = typer.Typer(add_completion=False)


@app.command(context_settings={"allow_interspersed_args": False})  # what follows the program is the program's
@with_limits
def run(
    context: typer.Context,
    argv: Annotated[list[str], typer.Argument(metavar="-- CMD [ARG]…", help="the program and its arguments")],
    bounds: LimitOptions = NO_LIMITS,
    require: Require = None,
    secret: Secrets = None,
    repo: Annotated[str | None, typer.Option(help="a git URL or path: run in a workspace of it")] = None,
    commit: Annotated[str | None, typer.Option(help="branch, tag or commit of --repo; HEAD if not given")] = None,
    patch: Annotated[Path | None, typer.Option(help="a patch to apply to the workspace")] = None,
    manifest: Manifests = None,
    python: Python = None,
    extra: Extras = None,
    group: Groups = None,
    artifact: Annotated[list[str] | None, typer.Option(help="files to keep afterwards, as a glob")] = None,
    tty: Annotated[bool, typer.Option("--tty", help="give the command a terminal")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="say nothing about the end")] = False,
) -> None:
    """Run one command here and now, server or not: its streams are ours, and so is its exit status."""
    try:
        command = command_spec(argv, limits=bounds.limits(), require=listed(require), secrets=secret or [], tty=tty)
        checkout = _checkout(repo, commit, patch, wanted_environment(manifest, python, extra, group), artifact or [])
    except DebugServerError as error:
        typer.echo(harmless(f"debug-server: {error}"), err=True)
        raise typer.Exit(FAILURE) from error
    open_local = invocation(context).programs.open_local
    raise typer.Exit(run_command_line(open_local, command, checkout, quiet=quiet))


def _checkout(
    repo: str | None,
    commit: str | None,
    patch: Path | None,
    environment: EnvironmentPlan | None,
    artifacts: list[str],
) -> CheckoutOptions | None:
    if repo is not None:
        return CheckoutOptions(
            repository=repo,
            commit=commit or "HEAD",
            patch=patch,
            environment=environment,
            artifacts=artifacts,
        )
    wanted = environment or EnvironmentPlan()
    given = {
        "--commit": commit,
        "--patch": patch,
        "--manifest": wanted.manifests,
        "--python": wanted.python,
        "--extra": wanted.extras,
        "--group": wanted.groups,
        "--artifact": artifacts,
    }
    for name, value in given.items():
        if value:
            raise InvalidInputError(f"{name} needs --repo: without it the command runs in this very directory")
    return None
