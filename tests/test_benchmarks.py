"""The benchmarks run and report in their form; how fast anything is, is not tested."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks import machine, report
from benchmarks.__main__ import SUBJECTS, main
from benchmarks.figures import Bar, Figure, Result, Samples, Size, Skipped, added, at_least, at_most, interleaved
from benchmarks.packages import PYTEST, TWENTY_FIVE, requirements


@pytest.mark.timeout(600)  # dozens of processes, on a machine that may be busy
@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_subject_reports_figures_in_its_smallest_size(subject: str) -> None:
    """A subject gives named figures with a finite value and a unit, or says why it was skipped; both are printable."""
    results = SUBJECTS[subject](Size.SMALLEST)
    assert results
    assert len({result.name for result in results}) == len(results)
    for result in results:
        _check_shape(result)
    written = json.loads(report.document(machine.describe(), {subject: results}))
    assert [item["name"] for item in written["subjects"][subject]] == [result.name for result in results]
    table = "\n".join(report.rows(subject, results))
    assert all(f"{subject}.{result.name}" in table for result in results)


def _check_shape(result: Result) -> None:
    if isinstance(result, Skipped):
        assert result.reason
        return
    assert math.isfinite(result.value)
    assert result.unit
    assert (result.holds is None) == (result.bar is None)


def test_the_command_line_writes_a_table_and_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``--json FILE`` takes the document; the table, the load averages and the verdict go to stdout."""
    target = tmp_path / "figures.json"
    assert main(["memory", "--quick", "--json", str(target)]) == 0
    written = json.loads(target.read_text())
    assert list(written["subjects"]) == ["memory"]
    assert {"load_at_start", "load_at_end", "processors", "python"} <= set(written["machine"])
    printed = capsys.readouterr().out
    assert "memory.private_per_keeper" in printed
    assert "load_at_start" in printed
    assert "bars hold" in printed


def test_without_a_file_the_document_ends_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    """Without ``--json`` the document is the last thing on stdout."""
    assert main(["memory", "--quick"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed[printed.index("\n{") :])["subjects"]["memory"]


def test_an_unknown_name_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong name costs no measuring and the message lists the right ones."""
    with pytest.raises(SystemExit) as ended:
        main(["nonsense"])
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert "nonsense" in message
    assert all(name in message for name in SUBJECTS)


def test_percentiles_are_samples_and_keep_outliers() -> None:
    """p50 and p99 are values that were measured; the worst one is in the p99 of few samples and in the facts."""
    few = Samples.of([5.0, 1.0, 3.0])
    assert (few.p50, few.p99) == (3.0, 5.0)
    many = Samples.of([float(number) for number in range(1, 201)])
    assert (many.p50, many.p99) == (100.0, 198.0)
    assert many.facts("x")["x_max_ms"] == 200_000.0


def test_contenders_take_turns() -> None:
    """Both are warmed up, then called A B A B, and what they return is kept in order."""
    calls: list[str] = []

    def contender(name: str, seconds: float) -> float:
        calls.append(name)
        return seconds + len(calls)

    ours, peer = interleaved(lambda: contender("a", 0), lambda: contender("b", 0), rounds=2)
    assert calls == ["a", "b", "a", "b", "a", "b"]
    assert (ours.values, peer.values) == ((3, 5), (4, 6))


def test_a_slow_moment_of_the_peer_is_no_credit() -> None:
    """Added time is counted from the peer's median."""
    assert added(Samples.of([3.0, 4.0]), Samples.of([1.0, 1.0, 90.0])).values == (2.0, 3.0)


@pytest.mark.parametrize(
    ("bar", "good", "bad"), [(at_most(2.5), 2.5, 2.6), (at_least(0.85), 0.85, 0.84), (Bar(limit=0), -1.0, 0.1)]
)
def test_a_bar_includes_its_limit(bar: Bar, good: float, bad: float) -> None:
    """The limit itself still holds, on either side."""
    assert Figure(name="x", value=good, unit="ms", bar=bar).holds is True
    assert Figure(name="x", value=bad, unit="ms", bar=bar).holds is False


def test_a_busy_machine_is_named() -> None:
    """A load average above 0.5 gives a warning with its value, one below none."""
    assert "0.7" in (machine.warning("start", [0.7, 0.0, 0.0]) or "")
    assert machine.warning("start", [0.5, 9.0, 9.0]) is None


def test_the_packages_are_in_the_projects_lock() -> None:
    """Twenty-five packages with versions and hashes, as the lock has them."""
    text = requirements(TWENTY_FIVE)
    assert len(set(TWENTY_FIVE)) == 25
    assert text.count("==") == 25
    assert text.count("--hash=sha256:") >= 25
    assert requirements(PYTEST).count("==") == 5
