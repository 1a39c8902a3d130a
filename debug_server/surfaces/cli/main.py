"""The program's commands by name, each loaded when it is called, and the options that stand before them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from debug_server import __version__
from debug_server.errors import DebugServerError
from debug_server.surfaces.cli.invocation import Invocation, Programs
from debug_server.surfaces.cli.output import tell, write_line
from debug_server.surfaces.cli.standard_streams import report_os_error
from debug_server.surfaces.cli.token_input import TokenFileOption, TokenOption, given_token

# name -> (module, sentence)
COMMANDS = {
    "run": ("run_line", "Run a command on this machine."),
    "serve": ("serve", "Serve HTTP, WebSockets and gRPC."),
    "gateway": ("gateway", "The OpenAI-compatible API by itself: serve."),
    "server": ("server", "Set a server up for a repository."),
    "repo": ("repo", "Registered git remotes: add, list, show."),
    "session": ("session", "Workspaces: create, list, show, logs, debug, diff, reset, fork, close."),
    "command": ("command", "Commands in sessions: submit, run, list, show, cancel, signal, stdin, wait."),
    "tasks": ("tasks", "Host tasks: serve, submit, list, get, wait, cancel, logs."),
    "logs": ("logs", "The output of a command, from any byte on."),
    "env": ("env", "Shared environments of this machine: list, verify, gc."),
    "artifact": ("artifact", "Files that commands left: list, show, download."),
    "worker": ("worker", "Supervised long-lived processes: list, restart, reset, stop."),
    "token": ("token", "Access tokens: create, list, revoke."),
    "events": ("events", "What happened, and what happens now."),
    "grpc": ("grpc", "The server in the background: start, stop, status."),
    "emit": ("emit", "Tell runners that something happened to a card."),
    "probe": ("probe", "The probe and the governor: status, changelog."),
    "status": ("status", "Whether the server is healthy, and who you are there."),
    "doctor": ("doctor", "What this machine can really do, and what to install."),
    "purge": ("purge", "End everything in a data folder and remove it."),
    "configure": ("configure", "Save which server to use."),
    "mcp": ("mcp", "Speak the Model Context Protocol over stdin and stdout."),
}
EXIT_STATUSES = """\
Exit status: 0 done; 1 not found, in conflict or not healthy; 2 a wrong value; 75 try again later; 77 not allowed;
130 interrupted. For run, command run, command wait and --follow it is the command's own, or 123 over a limit,
124 too long or too silent, 125 debug-server failed, 127 not started, 128 + n signal n."""
INTERRUPTED = 130
# What follows these commands may be another program's flag.
_TAKE_ARGV = {("run",), ("command", "run"), ("command", "submit"), ("tasks", "submit")}
_ROOT_VALUES = ("--base-url", "--token", "--token-file")  # options before the command whose next word is their value


class LazyCommands(TyperGroup):
    """Loads a command's module when it is called, and none for the list of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of them, or None."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"debug_server.surfaces.cli.{COMMANDS[cmd_name][0]}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """From the table, without loading anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])

    def invoke(self, ctx: Any) -> Any:
        """Errors of ours become one line and an exit status."""
        try:
            return super().invoke(ctx)
        except DebugServerError as error:
            raise typer.Exit(ctx.obj.report(error)) from error
        except KeyboardInterrupt as error:
            tell("interrupted")
            raise typer.Exit(INTERRUPTED) from error


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
        base_url: Annotated[str | None, typer.Option(help="of the server; default: as configured, or none")] = None,
        token: TokenOption = None,
        token_file: TokenFileOption = None,
        local: Annotated[
            bool, typer.Option("--local", help="work on this machine, whatever server is configured")
        ] = False,
        insecure: Annotated[bool | None, typer.Option("--insecure/--verify", help="accept any certificate")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="answer in JSON")] = False,
        version: Annotated[
            bool, typer.Option("--version", help="print the version", callback=_show_version, is_eager=True)
        ] = False,
    ) -> None:
        """Runs commands for people and coding agents, and never loses them."""
        _raise_interrupts()
        verify = None if insecure is None else not insecure
        flags = {"base_url": base_url, "verify_tls": verify}
        context.obj = Invocation(programs=programs, flags=flags, as_json=as_json, local=local or base_url == "")
        context.obj.flags["token"] = given_token(token, token_file)

    try:
        app(prog_name=name, args=hoisted(sys.argv[1:] if argv is None else argv))
    except OSError as error:
        raise SystemExit(report_os_error(error)) from error


def hoisted(argv: Sequence[str]) -> list[str]:
    """``--json`` may stand anywhere before a program's own arguments."""
    end = _own_words(argv)
    head = [word for word in argv[:end] if word != "--json"]
    return [*["--json"][: len(head) < end], *head, *argv[end:]]


def _own_words(argv: Sequence[str]) -> int:
    """How many words come before those of a program to run: a name such as ``repo add run`` is none."""
    path: tuple[str, ...] = ()
    value = False  # whether this word is an option's value
    for index, word in enumerate(argv):
        if word == "--":
            return index
        if not value and not word.startswith("-"):
            path = (*path, word)
            if path in _TAKE_ARGV:
                return index
        value = not path and word in _ROOT_VALUES
    return len(argv)
