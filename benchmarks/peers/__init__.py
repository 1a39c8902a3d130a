"""One request that runs a command and returns its output, against peers of this field that keep nothing.

Each peer is in an environment of its own below ``.cache``, which the first run makes. All take turns in the same run.
"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.figures import Fact, Figure, Result, Samples, Size, Skipped, at_least, at_most, interleaved
from benchmarks.peers.contenders import IN_FLIGHT, Contender
from benchmarks.peers.inspect_sandbox import inspect_sandbox
from benchmarks.peers.installation import MissingPeerError
from benchmarks.peers.ours import ours
from benchmarks.peers.spawn_floor import SpawnFloor
from benchmarks.peers.swe_rex import swe_rex

_ROUNDS = {Size.FULL: 400, Size.QUICK: 60, Size.SMALLEST: 1}
_BLOCKS = {Size.FULL: 15, Size.QUICK: 5, Size.SMALLEST: 1}
_PER_BLOCK = {Size.FULL: 80, Size.QUICK: 40, Size.SMALLEST: 8}
_OUTPUTS = {Size.FULL: 7, Size.QUICK: 3, Size.SMALLEST: 1}
_OUTPUT_BYTES = {Size.FULL: 50_000_000, Size.QUICK: 50_000_000, Size.SMALLEST: 100_000}

Facts = dict[str, Fact]


def measure(size: Size) -> list[Result]:
    """A missing peer is named, with the reason."""
    missing: list[Result] = []
    with ExitStack() as stack:
        contenders: list[Contender] = [stack.enter_context(ours()), SpawnFloor()]
        for peer in (swe_rex, inspect_sandbox):
            try:
                contenders.append(stack.enter_context(peer(install=size is not Size.SMALLEST)))
            except MissingPeerError as error:
                missing.append(Skipped(name=error.name, reason=str(error)))
        found = {contender.name: contender for contender in contenders}
        about: Facts = {f"{name}_is": contender.about for name, contender in found.items()}
        return [*_one(found, size, about), *_eight(found, size), *_output(found, size), *missing]


def _one(contenders: dict[str, Contender], size: Size, about: Facts) -> list[Result]:
    taken = interleaved(
        *(contender.run_one for contender in contenders.values()), rounds=_ROUNDS[size], warm_up=_ROUNDS[size] // 10 + 1
    )
    samples = dict(zip(contenders, taken, strict=True))
    facts = about | _spread(samples)
    first = Figure(name="exec_p50", value=round(samples["ours"].p50 * 1000, 4), unit="ms", facts=facts)
    goals = {"spawn": at_most(4), "swe_rex": at_most(1)}
    times = {name: round(samples["ours"].p50 / peer.p50, 3) for name, peer in samples.items() if name != "ours"}
    return [
        first,
        *(
            Figure(name=f"exec_of_{name}", value=value, unit="times", bar=goals.get(name))
            for name, value in times.items()
        ),
    ]


def _eight(contenders: dict[str, Contender], size: Size) -> list[Result]:
    count = _PER_BLOCK[size]
    taken = interleaved(
        *(lambda contender=contender: contender.run_many(count) for contender in contenders.values()),
        rounds=_BLOCKS[size],
    )
    samples = dict(zip(contenders, taken, strict=True))
    rates: Facts = {f"{name}_per_s": round(count / block.p50, 1) for name, block in samples.items()}
    first = Figure(
        name="eight_in_flight",
        value=round(count / samples["ours"].p50, 1),
        unit="1/s",
        facts={"in_flight": IN_FLIGHT, "per_block": count} | rates | _spread(samples),
    )
    goals = {"spawn": at_least(0.25), "swe_rex": at_least(1)}
    shares = {name: round(peer.p50 / samples["ours"].p50, 3) for name, peer in samples.items() if name != "ours"}
    return [
        first,
        *(
            Figure(name=f"eight_of_{name}", value=share, unit="of rate", bar=goals.get(name))
            for name, share in shares.items()
        ),
    ]


def _output(contenders: dict[str, Contender], size: Size) -> list[Result]:
    """All bytes at the client. What returns less is named."""
    total = _OUTPUT_BYTES[size]
    able = {name: contender for name, contender in contenders.items() if contender.most_output >= total}
    taken = interleaved(
        *(lambda contender=contender: contender.run_output(total) for contender in able.values()), rounds=_OUTPUTS[size]
    )
    samples = dict(zip(able, taken, strict=True))
    facts: Facts = {"bytes": total} | _spread(samples)
    results: list[Result] = [Figure(name="output", value=round(samples["ours"].p50 * 1000, 2), unit="ms", facts=facts)]
    if (peer := samples.get("swe_rex")) is not None:
        times = round(peer.p50 / samples["ours"].p50, 3)
        results.append(Figure(name="output_faster_than_swe_rex", value=times, unit="times", bar=at_least(2)))
    for name, contender in contenders.items():
        if name not in able:
            reason = f"it returns at most {contender.most_output} bytes of output"
            results.append(Skipped(name=f"output_of_{name}", reason=reason))
    return results


def _spread(samples: dict[str, Samples]) -> Facts:
    """Median and quartiles of each, in milliseconds."""
    facts: Facts = {}
    for name, found in samples.items():
        low, middle, high = (round(found.percentile(percent) * 1000, 3) for percent in (25, 50, 75))
        facts[f"{name}_ms"] = f"{middle:g} [{low:g}, {high:g}]"
    return facts
