"""The options that bound a command: declared once, for every command line that runs one."""

from __future__ import annotations

from typing import Annotated

import typer

Timeout = Annotated[float | None, typer.Option(help="wall-clock seconds")]
IdleTimeout = Annotated[float | None, typer.Option(help="seconds without output")]
Memory = Annotated[str | None, typer.Option(help="of the whole tree, such as 64M")]
Cpus = Annotated[float | None, typer.Option(help="cpu quota in cores")]
CpuSeconds = Annotated[float | None, typer.Option(help="cpu time of the whole tree")]
Pids = Annotated[int | None, typer.Option(help="processes and threads at one time")]
OpenFiles = Annotated[int | None, typer.Option(help="of each process")]
FileSize = Annotated[str | None, typer.Option(help="of each written file, such as 1G")]
OutputSize = Annotated[str | None, typer.Option(help="bytes of stdout and stderr together, such as 100M")]
Require = Annotated[list[str] | None, typer.Option(help="a limit that must really be enforced")]
