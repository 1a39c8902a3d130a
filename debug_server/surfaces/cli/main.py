"""The program's commands by name, each loaded when it is called, and the options that stand before them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from debug_server import __version__
from debug_server.errors import DebugServerError
from debug_server.nearest import nearest
from debug_server.surfaces.cli.invocation import Invocation, Programs
from debug_server.surfaces.cli.output import print_notice, write_line
from debug_server.surfaces.cli.standard_streams import report_os_error
from debug_server.surfaces.cli.token_input import TokenFileOption, TokenOption, given_token

# name -> (module, sentence)
COMMANDS = {
    "run": ("run_line", "Run a command on this machine."),
    "plan": ("plan", "Show the environment that run --repo would use."),
    "ps": ("ps", "The commands that run or wait now."),
    "history": ("history", "The commands that have ended, newest first."),
    "rerun": ("rerun", "Run an earlier command again."),
    "exec": ("exec", "Run a command and print its output when it has ended."),
    "serve": ("serve", "Serve HTTP, WebSockets and gRPC."),
    "gateway": ("gateway", "The OpenAI-compatible API on its own: serve."),
    "server": ("server", "Set up a server for a repository."),
    "repo": ("repo", "Registered git remotes: add, list, show, remove."),
    "session": ("session", "Workspaces: create, list, show, logs, debug, diff, reset, fork, close."),
    "command": ("command", "Commands in sessions: submit, run, list, show, cancel, signal, stdin, wait."),
    "tasks": ("tasks", "Host tasks: serve, submit, list, get, wait, cancel, logs."),
    "logs": ("logs", "Print or follow the output of a command."),
    "env": ("env", "Shared environments of this machine: list, verify, gc."),
    "artifact": ("artifact", "Files kept from commands: list, show, download."),
    "worker": ("worker", "Supervised long-lived processes: list, restart, reset, stop."),
    "token": ("token", "Access tokens: create, list, revoke."),
    "events": ("events", "Print or follow events."),
    "grpc": ("grpc", "The server in the background: start, stop, status."),
    "emit": ("emit", "Send an event of a card, a push or a pull request to the runners."),
    "probe": ("probe", "The probe runner's server, and the governor's changelog: status, changelog."),
    "status": ("status", "Show the server's health and your identity."),
    "doctor": ("doctor", "Check what works on this machine, and what to install."),
    "purge": ("purge", "End everything in a data folder and remove it."),
    "configure": ("configure", "Save which server to use."),
    "mcp": ("mcp", "Serve the Model Context Protocol over stdin and stdout."),
}
EXIT_STATUSES = """\
Example: debug-server run -- pytest -q. Every command has its own help: debug-server run -h. --base-url, --token,
--token-file, --local, --insecure and --json may also follow the command: debug-server history --local.

Exit status: 0 success; 1 not found, conflict or unhealthy; 2 invalid value; 75 try again later; 77 not allowed;
130 interrupted. run, exec, rerun, command run, command wait and --follow exit with the command's status, or with
123 if it exceeded a limit, 124 if it timed out, 125 if debug-server failed, 127 if it could not start,
128 + n for signal n."""
INTERRUPTED = 130
_SUGGESTIONS = 3


class LazyCommands(TyperGroup):
    """Loads a command's module when it is called, and none for the list of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of them, or None. For the completion of names, none is loaded."""
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1]) if ctx.resilient_parsing else self._load(cmd_name)

    def _load(self, cmd_name: str) -> Any:
        module = import_module(f"debug_server.surfaces.cli.{COMMANDS[cmd_name][0]}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        _accept_json(command)
        _accept_anywhere(command)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names; an unknown one is answered with what may be meant."""
        if ctx.resilient_parsing:
            return (args[0], self._load(args[0]), args[1:]) if args[0] in COMMANDS else (None, None, args[1:])
        if not args[0].startswith("-") and args[0] not in COMMANDS:
            ctx.fail(f"No such command {args[0]!r}.{_suggestion(args[0], partial(self.get_command, ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """From the table, without loading anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])

    def invoke(self, ctx: Any) -> Any:
        """Report a DebugServerError as one line and an exit status."""
        try:
            return super().invoke(ctx)
        except DebugServerError as error:
            raise typer.Exit(ctx.obj.report(error)) from error
        except KeyboardInterrupt as error:
            print_notice("interrupted")
            raise typer.Exit(INTERRUPTED) from error


def _accept_json(command: Any) -> None:
    """Add ``--json`` to a command and those below it, so that it may stand anywhere before a program's own words."""
    command.params.append(
        TyperOption(
            param_decls=["as_json", "--json"],
            is_flag=True,
            expose_value=False,
            callback=_answer_in_json,
            help="answer in JSON",
        )
    )
    for below in getattr(command, "commands", {}).values():
        _accept_json(below)


def _accept_anywhere(command: Any) -> None:
    """Add the options of the whole program to a command and those below it, which may have options of these names."""
    taken = {name for parameter in command.params for name in parameter.opts}
    for name, (is_flag, callback) in _ANYWHERE.items():
        if name not in taken:
            words = [f"program_{name.strip('-').replace('-', '_')}", name]
            option = TyperOption(param_decls=words, is_flag=is_flag, expose_value=False, hidden=True, callback=callback)
            command.params.append(option)
    for below in getattr(command, "commands", {}).values():
        _accept_anywhere(below)


def _work_here(context: typer.Context, _: object, wanted: bool) -> None:
    if wanted:
        context.find_root().obj.local = True


def _use_server(context: typer.Context, _: object, url: str | None) -> None:
    if url is not None:
        call = context.find_root().obj
        call.flags["base_url"], call.local = url, call.local or url == ""


def _use_token(context: typer.Context, _: object, token: str | None) -> None:
    if token is not None:
        context.find_root().obj.flags["token"] = given_token(token, None)


def _use_token_file(context: typer.Context, _: object, file: str | None) -> None:
    if file is not None:
        context.find_root().obj.flags["token"] = given_token(None, Path(file))


def _accept_any_certificate(context: typer.Context, _: object, wanted: bool) -> None:
    if wanted:
        context.find_root().obj.flags["verify_tls"] = False


# Options of the whole program that may also stand after the command, and whether each is a flag.
_ANYWHERE: dict[str, tuple[bool, Callable[..., None]]] = {
    "--local": (True, _work_here),
    "--base-url": (False, _use_server),
    "--token": (False, _use_token),
    "--token-file": (False, _use_token_file),
    "--insecure": (True, _accept_any_certificate),
}


def _answer_in_json(context: typer.Context, _: object, wanted: bool) -> None:
    if wanted:
        context.find_root().obj.as_json = True


def _suggestion(word: str, load: Callable[[str], Any]) -> str:
    """What may be meant by an unknown command: one of a similar name, or one of this name in a group."""
    found = [f"{name} {word}" for name in COMMANDS if word in getattr(load(name), "commands", {})]
    if similar := nearest(word, COMMANDS):
        found.insert(0, similar)
    return f" Did you mean {', '.join(map(repr, found[:_SUGGESTIONS]))}?" if found else ""


def _show_version(wanted: bool) -> None:
    if wanted:
        write_line(f"debug-server {__version__}")
        raise typer.Exit


def _raise_interrupts() -> None:
    """From here on a KeyboardInterrupt is caught; before, while modules load, SIGINT ends the process at once."""
    if callable(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, signal.default_int_handler)


def run_cli(programs: Programs, argv: Sequence[str] | None = None, *, name: str = "debug-server") -> None:
    """Parse the command line, do it and exit with its status."""
    app = typer.Typer(
        cls=LazyCommands,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        epilog=EXIT_STATUSES,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        context: typer.Context,
        base_url: Annotated[
            str | None, typer.Option(metavar="URL", help="the server; default: as configured, or this machine alone")
        ] = None,
        token: TokenOption = None,
        token_file: TokenFileOption = None,
        local: Annotated[
            bool, typer.Option("--local", help="work on this machine, whatever server is configured")
        ] = False,
        insecure: Annotated[
            bool | None, typer.Option("--insecure/--verify", help="accept any certificate, or only a valid one")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="answer in JSON")] = False,
        version: Annotated[
            bool, typer.Option("--version", help="print the version", callback=_show_version, is_eager=True)
        ] = False,
    ) -> None:
        """Run commands for people and coding agents, and never lose a command."""
        _raise_interrupts()
        verify = None if insecure is None else not insecure
        flags = {"base_url": base_url, "verify_tls": verify}
        context.obj = Invocation(programs=programs, flags=flags, as_json=as_json, local=local or base_url == "")
        context.obj.flags["token"] = given_token(token, token_file)

    try:
        app(prog_name=name, args=sys.argv[1:] if argv is None else list(argv))
    except OSError as error:
        raise SystemExit(report_os_error(error)) from error
