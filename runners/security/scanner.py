"""Finds credentials in one file: detect-secrets for the known formats, and beginnings that the operator lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from runners.kit.refusal import Refusal
from runners.kit.tree import Tree

try:
    from detect_secrets.core.plugins.initialize import from_plugin_classname
    from detect_secrets.filters.heuristic import is_indirect_reference, is_templated_secret
except ModuleNotFoundError as error:
    raise SystemExit("security: bc-detect-secrets is not installed: pip install 'debug-server[runners]'") from error

# Detectors of formats. Those of keywords and of entropy find a thousand harmless strings for each secret: a report
# that is mostly wrong is not read.
DETECTORS = (
    *("ArtifactoryDetector", "AWSKeyDetector", "AzureStorageKeyDetector", "BasicAuthDetector", "CloudantDetector"),
    *("DiscordBotTokenDetector", "GitHubTokenDetector", "IbmCloudIamDetector", "IbmCosHmacDetector"),
    *("JwtTokenDetector", "MailchimpDetector", "NpmDetector", "PrivateKeyDetector", "SendGridDetector"),
    *("SlackDetector", "SoftlayerDetector", "SquareOAuthDetector", "StripeDetector", "TwilioKeyDetector"),
)
ALLOWED = re.compile(rb"pragma: ?allowlist[ -]secret")
LARGEST = 8 << 20
LONGEST_LINE = 10_000  # beyond it: generated text, in which only the listed beginnings are looked for
# A beginning alone is a mention ("keys start with ghp_"); a credential goes on.
REST = rb"[A-Za-z0-9_\-]{12,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One possible credential, without its value."""

    line: int
    kind: str
    masked: str


class Scanner:
    """Scans files one by one; ``unread`` names those that were too large or not readable."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        beginnings = b"|".join(re.escape(pattern.encode("utf-8", "replace")) for pattern in patterns)
        self._pattern = re.compile(rb"(?<![A-Za-z0-9])(?:" + beginnings + rb")" + REST)
        # Asked line by line: the library's own scan of a file looks the file up again for each of its lines.
        self._detectors = [from_plugin_classname(name) for name in DETECTORS]
        self.unread: list[str] = []

    def scan(self, tree: Tree, path: str) -> Iterator[Finding]:
        """A file's findings, by line; binary files are searched for the operator's beginnings only."""
        try:
            data = tree.read(path, limit=LARGEST)
        except Refusal:
            self.unread.append(path)
            return
        if data is None:
            return
        found = {finding.line: finding for finding in self._known_formats(data)}
        for finding in self._listed(data):
            known = found.get(finding.line, finding)  # knows the kind; its value may be a part only
            found[finding.line] = replace(finding, kind=known.kind)
        yield from (found[line] for line in sorted(found))

    def _listed(self, data: bytes) -> Iterator[Finding]:
        for number, line in enumerate(data.split(b"\n"), start=1):
            if (match := self._pattern.search(line)) and not ALLOWED.search(line):
                yield Finding(line=number, kind="listed pattern", masked=mask(match[0].decode()))

    def _known_formats(self, data: bytes) -> Iterator[Finding]:
        if b"\0" in data[:8192]:
            return
        for number, raw in enumerate(data.split(b"\n"), start=1):
            if len(raw) > LONGEST_LINE or len(raw) < 8 or ALLOWED.search(raw):
                continue
            line = raw.decode("utf-8", "replace")
            for detector in self._detectors:
                for value in detector.analyze_string(line):
                    if not is_templated_secret(value) and not is_indirect_reference(line):
                        yield Finding(line=number, kind=detector.secret_type, masked=mask(value))


def mask(value: str) -> str:
    """Enough to recognise a secret's kind, too little to use it."""
    return f"{value[:4]}… ({len(value)} characters)" if len(value) >= 16 else "…"
