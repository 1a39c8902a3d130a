"""``debug-server probe``: checks the probe, and prints the governor's changelog."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from debug_server.surfaces.cli.commands_app import CommandsApp
from debug_server.surfaces.cli.invocation import invocation

app = CommandsApp(no_args_is_help=True, help="The probe and the governor's versions.")
_SECONDS = 5.0
_SKILL, _DEFAULT_TARGET = "probe.sync", "127.0.0.1:50052"


@app.command()
def status(context: typer.Context) -> None:
    """Check whether a probe answers. Its address is that of the probe runner; exit with 1 if none answers."""
    import grpc

    from debug_server.surfaces.cli.governor import channel_to

    call = invocation(context)
    output = call.output()
    target = _target()
    try:
        with channel_to(call, target) as channel:
            grpc.channel_ready_future(channel).result(timeout=_SECONDS)
    except grpc.FutureTimeoutError:
        advice = "start it, or set PROBE_HOST and PROBE_GRPC_PORT"
        output.result(f"probe {target} does not answer: {advice}", {"target": target, "ok": False})
        raise typer.Exit(1) from None
    output.result(f"probe {target} answers", {"target": target, "ok": True})


def _target() -> str:
    """PROBE_HOST and PROBE_GRPC_PORT, else the address of the runner with the skill, else the default."""
    from debug_server.dispatch.configuration import read_configuration
    from debug_server.dispatch.folder import configuration_folder

    folder = configuration_folder()
    known = None
    if folder.is_used:
        known = read_configuration(folder.path, trusted_uids=folder.trusted_uids).runners.runner_for(_SKILL)
    host, _, port = (_DEFAULT_TARGET if known is None or known.rpc is None else known.program).rpartition(":")
    return f"{os.environ.get('PROBE_HOST') or host}:{os.environ.get('PROBE_GRPC_PORT') or port}"


@app.command()
def changelog(
    context: typer.Context,
    entries: Annotated[int, typer.Option(help="number of entries to print")] = 1,
    target: Annotated[str | None, typer.Option(help="host:port of the governor; default: that of this folder")] = None,
) -> None:
    """Print the governor's newest changelog entries."""
    from debug_server.kanban import kanban_pb2, kanban_pb2_grpc
    from debug_server.surfaces.cli.governor import CALL_SECONDS, channel_to, credentials, target_of

    call = invocation(context)
    address = target_of(call, target)
    with channel_to(call, address) as channel:
        stub: Any = kanban_pb2_grpc.VersionServiceStub(channel)  # type: ignore[no-untyped-call]
        found = stub.GetChangelog(
            kanban_pb2.GetChangelogRequest(entries=entries), timeout=CALL_SECONDS, metadata=credentials(call, address)
        )
    call.output().result(found.full_text or f"version {found.latest_version}", {"version": found.latest_version})
