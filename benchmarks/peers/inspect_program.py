"""Runs commands in Inspect's local sandbox as its stdin says, and prints how many seconds each order took.

It is run by the interpreter of the peer's environment, which has none of our modules.
"""

import asyncio
import json
import os
import sys
import time
from typing import Any

from inspect_ai.util._sandbox.local import LocalSandboxEnvironment  # type: ignore[import-not-found, unused-ignore]

_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the peer prints is no answer


async def _run(sandbox: Any, order: dict[str, Any]) -> float:
    slots = asyncio.Semaphore(order["in_flight"])

    async def call() -> None:
        async with slots:
            # Without its limit of one process for each processor.
            result = await sandbox.exec(order["argv"], concurrency=False)
        if result.returncode != 0 or len(result.stdout) != order["output"]:
            raise OSError(f"{order['argv'][0]} returned {result.returncode} and {len(result.stdout)} bytes")

    began = time.perf_counter()
    await asyncio.gather(*(call() for _ in range(order["count"])))
    return time.perf_counter() - began


async def _serve() -> None:
    sandbox = LocalSandboxEnvironment()
    try:
        while line := await asyncio.to_thread(sys.stdin.readline):
            _answers.write(f"{await _run(sandbox, json.loads(line))}\n")
            _answers.flush()
    finally:
        sandbox.directory.cleanup()


asyncio.run(_serve())
