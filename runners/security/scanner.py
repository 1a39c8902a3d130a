"""Finds credentials in files: known formats with detect-secrets, and prefixes that the operator lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from runners.kit.errors import JobError
from runners.kit.tree import Tree

try:
    from detect_secrets.core.plugins.initialize import from_plugin_classname
    from detect_secrets.filters.heuristic import is_indirect_reference, is_templated_secret
except ModuleNotFoundError as error:
    raise SystemExit("security: bc-detect-secrets is not installed: pip install 'debug-server[runners]'") from error

# Only detectors of formats: those of keywords and of entropy report mostly harmless strings.
DETECTORS = (
    *("ArtifactoryDetector", "AWSKeyDetector", "AzureStorageKeyDetector", "BasicAuthDetector", "CloudantDetector"),
    *("DiscordBotTokenDetector", "GitHubTokenDetector", "IbmCloudIamDetector", "IbmCosHmacDetector"),
    *("JwtTokenDetector", "MailchimpDetector", "NpmDetector", "PrivateKeyDetector", "SendGridDetector"),
    *("SlackDetector", "SoftlayerDetector", "SquareOAuthDetector", "StripeDetector", "TwilioKeyDetector"),
)
ALLOWED = re.compile(rb"pragma: ?allowlist[ -]secret")
MAX_BYTES = 8 << 20
LONGEST_LINE = 10_000  # longer lines are generated text: only listed prefixes are searched there
# A prefix alone is a mention ("keys start with ghp_"); a credential is longer.
REST = rb"[A-Za-z0-9_\-]{12,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One possible credential, without its value."""

    line: int
    kind: str
    masked: str


class Scanner:
    """Scans files; ``not_scanned`` lists those that were too large or unreadable."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        prefixes = b"|".join(re.escape(pattern.encode("utf-8", "replace")) for pattern in patterns)
        self._pattern = re.compile(rb"(?<![A-Za-z0-9])(?:" + prefixes + rb")" + REST)
        # Used line by line: the library's scan of a file opens the file again for each line.
        self._detectors = [from_plugin_classname(name) for name in DETECTORS]
        self.not_scanned: list[str] = []

    def scan(self, tree: Tree, path: str) -> Iterator[Finding]:
        """The findings in a file, by line; binary files are searched only for listed prefixes."""
        try:
            data = tree.read(path, limit=MAX_BYTES)
        except JobError:
            self.not_scanned.append(path)
            return
        if data is None:
            return
        found = {finding.line: finding for finding in self._known_formats(data)}
        for finding in self._listed(data):
            known = found.get(finding.line, finding)  # has the kind; its value may be only a part
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
    """The first characters of a secret and its length."""
    return f"{value[:4]}… ({len(value)} characters)" if len(value) >= 16 else "…"
