"""Ready by polling: an address that answers 2xx, or a program that ends with status 0."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Mapping
from typing import Any

from debug_server.disk import remove_tree
from debug_server.errors import AccessError
from debug_server.model import ExitReason, ExitRecord, Limits
from debug_server.runner import child_environment
from debug_server.runner.launch import LaunchOrder, launch
from debug_server.runner.limits import plan_limits
from debug_server.runner.running_command import RunningCommand
from debug_server.sockets.trust import HttpTrust, TrustedServerUser
from debug_server.workers.interface import WorkerChannel
from debug_server.workers.readiness.probe import Probe, ProbeFailedError
from debug_server.workers.spec import ExecReadiness, HttpReadiness

_OUTPUT_BYTES = 64 << 10
_OWN_WORKER = TrustedServerUser(advice='check its readiness with a program of yours: readiness = "exec"')


class _PollingProbe(Probe):
    """Repeats a check until it succeeds."""

    _interval = 0.2

    async def ready(self, channel: WorkerChannel) -> Mapping[str, Any]:
        """Poll; the details are the number of tries."""
        for tries in itertools.count(1):
            try:
                await self.check()
            except ProbeFailedError as error:
                self.failure = str(error)
                await asyncio.sleep(self._interval)
            else:
                return {"tries": tries}
        raise AssertionError("unreachable")


class HttpProbe(_PollingProbe):
    """GET an address."""

    def open(self) -> None:
        """Set the interval."""
        self._interval = self._readiness.interval

    @property
    def _readiness(self) -> HttpReadiness:
        readiness = self._context.spec.readiness
        assert isinstance(readiness, HttpReadiness)
        return readiness

    async def check(self) -> None:
        """ProbeFailedError unless the answer is 2xx, in time and from a worker of this user's; its body is not read."""
        import httpx  # imported late: costs 0.1 s, and few workers use it

        url, timeout = self._readiness.url, self._readiness.timeout
        trust = HttpTrust(_OWN_WORKER, connection_error=httpx.ConnectError)
        client = httpx.AsyncClient(
            timeout=timeout,
            trust_env=False,
            headers={"Accept-Encoding": "identity"},
            event_hooks={"request": [] if url.startswith("https://") else [trust.async_hook]},
        )
        try:
            async with asyncio.timeout(timeout), client, client.stream("GET", url) as answer:
                if not answer.is_success:
                    raise ProbeFailedError(f"{url} answers {answer.status_code}")
        except TimeoutError as error:
            raise ProbeFailedError(f"{url} does not answer within {timeout:g} s") from error
        except AccessError as error:  # another user has the port
            raise ProbeFailedError(str(error)) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ProbeFailedError(f"{url} does not answer: {error or type(error).__name__}") from error


class ExecProbe(_PollingProbe):
    """Runs a program under its own keeper, which ends its child processes too."""

    _numbers = itertools.count(1)

    def open(self) -> None:
        """Set the interval, and remove what the probe of a killed server left."""
        self._interval = self._readiness.interval
        remove_tree(self._folder)

    @property
    def _readiness(self) -> ExecReadiness:
        readiness = self._context.spec.readiness
        assert isinstance(readiness, ExecReadiness)
        return readiness

    @property
    def _folder(self) -> Any:
        return self._context.folder / "probes"

    async def check(self) -> None:
        """ProbeFailedError unless the program ends with status 0."""
        started: list[RunningCommand] = []
        asking = asyncio.ensure_future(asyncio.to_thread(self._run, started))
        try:
            record = await asyncio.shield(asking)
        except asyncio.CancelledError:
            for running in started:
                running.cancel()
            await asyncio.wait([asking])
            raise
        if record.reason is not ExitReason.EXITED:
            what = record.message or f"status {record.exit_code}"
            raise ProbeFailedError(f"the probe {self._readiness.argv[0]!r} failed: {what}")

    def _run(self, started: list[RunningCommand]) -> ExitRecord:
        context = self._context
        number = next(self._numbers)
        limits = Limits(wall_seconds=self._readiness.timeout, output_bytes=_OUTPUT_BYTES)
        log_path = self._folder / f"probe-{number}.log"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        order = LaunchOrder(
            command_id=0,
            attempt=number,
            argv=self._readiness.argv,
            env=child_environment.command_variables(
                child_environment.default_base(os.environ),
                environment={},
                overrides=context.spec.environment(),
                limits=limits,
            ),
            cwd=context.spec.cwd,
            limits=plan_limits(limits, context.runner.pool.capabilities),
            log_path=log_path,
            kill_grace=0.0,
        )
        running = launch(context.runner.pool, self._folder, order)
        started.append(running)
        record = running.wait()
        running.dispose()
        for path in self._folder.glob(f"{log_path.name}*"):
            path.unlink(missing_ok=True)
        return record
