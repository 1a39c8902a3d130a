"""Security: looks for leaked credentials and names each by file and line, never by its value."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from runners.kit.event import Event, changed_paths
from runners.kit.files import repository_files
from runners.kit.program import run
from runners.kit.refusal import Refusal
from runners.kit.tree import Tree
from runners.kit.words import single_line
from runners.security.scanner import Finding, Scanner

PATTERNS = ("sk-or-", "ghp_", "AIza")
MOST_SHOWN = 200
ESCAPE = "\\x"


def audit(event: Event, tree: Tree) -> Iterator[str]:
    """Scan the files that a push changed, or all files; findings end it with a status other than 0."""
    findings: list[Finding] = []
    scanned = 0
    scanner = Scanner(scan_patterns(event))
    changed = changed_paths(event)
    if any(ESCAPE in path for path in changed):
        changed = []  # told with escapes, a name that is not UTF-8 cannot be opened: look at all rather than miss it
    for path in repository_files(tree, changed or None):
        scanned += 1
        for finding in scanner.scan(tree, path):
            findings.append(finding)
            if len(findings) <= MOST_SHOWN:
                yield f"{single_line(path)}:{finding.line}: {finding.kind}: {finding.masked}"
    yield f"{scanned} files scanned, {len(findings)} findings"
    for path in scanner.unread[:MOST_SHOWN]:
        yield f"not scanned: {single_line(path)}"
    if findings:
        raise Refusal(f"{len(findings)} possible credentials; remove them and revoke what was ever pushed")


def scan_patterns(event: Event) -> tuple[str, ...]:
    """The beginnings of credentials that the runner's configuration names."""
    given = event.settings.get("scan_patterns") or PATTERNS
    if not isinstance(given, list | tuple) or not all(isinstance(item, str) and item for item in given):
        raise Refusal("scan_patterns is a list of texts that are not empty")
    return tuple(given)


if __name__ == "__main__":
    sys.exit(run("security", {"cred.audit": audit}))
