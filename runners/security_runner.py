"""Security: finds leaked credentials and reports file and line, never the value."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from runners.kit.errors import JobError
from runners.kit.event import Event, changed_paths
from runners.kit.files import repository_files
from runners.kit.program import run
from runners.kit.text import single_line
from runners.kit.tree import Tree
from runners.security.scanner import Finding, Scanner

PATTERNS = ("sk-or-", "ghp_", "AIza")
MAX_SHOWN = 200
ESCAPE = "\\x"


def audit(event: Event, tree: Tree) -> Iterator[str]:
    """Scan the files that a push changed, or all files; findings give a nonzero status."""
    findings: list[Finding] = []
    scanned = 0
    scanner = Scanner(scan_patterns(event))
    changed = changed_paths(event)
    if any(ESCAPE in path for path in changed):
        changed = []  # an escaped name that is not UTF-8 cannot be opened: scan all files
    for path in repository_files(tree, changed or None):
        scanned += 1
        for finding in scanner.scan(tree, path):
            findings.append(finding)
            if len(findings) <= MAX_SHOWN:
                yield f"{single_line(path)}:{finding.line}: {finding.kind}: {finding.masked}"
    yield f"{scanned} files scanned, {len(findings)} findings"
    for path in scanner.not_scanned[:MAX_SHOWN]:
        yield f"not scanned: {single_line(path)}"
    if findings:
        raise JobError(f"{len(findings)} possible credentials: remove them and revoke those that were pushed")


def scan_patterns(event: Event) -> tuple[str, ...]:
    """The prefixes of credentials in the runner's configuration."""
    given = event.settings.get("scan_patterns") or PATTERNS
    if not isinstance(given, list | tuple) or not all(isinstance(item, str) and item for item in given):
        raise JobError("scan_patterns must be a list of non-empty strings")
    return tuple(given)


if __name__ == "__main__":
    sys.exit(run("security", {"cred.audit": audit}))
