"""Webhooks of hosting services: checks the signature and makes events of pushes and pull requests."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from debug_server.config.dispatch import HOOK_SECRET
from debug_server.dispatch.issue_event import IssueEvent
from debug_server.errors import AccessError, InvalidInputError

_KINDS = {"push": "push", "pull_request": "pr"}
_PREFIX = "sha256="
_COMMIT_LENGTH = 40


def require_signature(secret: str | None, signature: str | None) -> str:
    """The secret for the signature; AccessError if webhooks are off or the request is not signed."""
    if not secret:
        raise AccessError(f"webhooks are disabled: set {HOOK_SECRET} on the server, and the same secret at the sender")
    if not signature or not signature.startswith(_PREFIX):
        raise AccessError("the header X-Hub-Signature-256: sha256=... is missing: give the hook a secret")
    return secret


def verify(secret: str | None, body: bytes, signature: str | None) -> None:
    """AccessError unless the body was signed with the secret."""
    known = require_signature(secret, signature)
    expected = hmac.new(known.encode(), body, hashlib.sha256).hexdigest()
    given = (signature or "").removeprefix(_PREFIX)
    if not hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace")):
        raise AccessError("wrong signature: the hook and the server have different secrets")


def event_of(repo_name: str, kind: str, body: bytes) -> IssueEvent | None:
    """The event of a verified delivery; None for other kinds, such as a ping.

    InvalidInputError for a body that does not fit its kind: read as a push without paths, it would start runners.
    """
    if not kind:
        raise InvalidInputError("the header X-GitHub-Event (or X-Gitea-Event) is missing")
    if kind not in _KINDS:
        return None
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidInputError("the body must be a JSON object")
    return _push(repo_name, found) if kind == "push" else _pull_request(repo_name, found)


def _push(repo_name: str, body: Mapping[str, Any]) -> IssueEvent:
    after, commits = body.get("after"), body.get("commits")
    if not isinstance(after, str) or not after:
        raise InvalidInputError("'after' of a push must be a string: the new commit of the branch")
    if not isinstance(commits, list) or not all(isinstance(item, dict) for item in commits):
        raise InvalidInputError("'commits' of a push must be a list of objects; it may be empty")
    paths = [path for commit in commits for name in ("added", "modified", "removed") for path in _texts(commit, name)]
    facts = {"ref": body.get("ref"), "before": body.get("before"), "after": after, "commits": len(commits)}
    return IssueEvent(
        task_id=after[:_COMMIT_LENGTH],
        event_type="push",
        repo_name=repo_name,
        field=str(body.get("ref") or ""),
        payload=json.dumps(facts),
        paths=tuple(dict.fromkeys(paths)),
    )


def _pull_request(repo_name: str, body: Mapping[str, Any]) -> IssueEvent:
    request = body.get("pull_request")
    details = request if isinstance(request, dict) else {}
    number = body.get("number")
    if not isinstance(number, int) or isinstance(number, bool):
        raise InvalidInputError("'number' of a pull request must be a whole number")
    facts = {"number": number, "action": body.get("action"), "title": details.get("title")}
    return IssueEvent(
        task_id=f"pr-{number}",
        event_type="pr",
        repo_name=repo_name,
        field=str(body.get("action") or ""),
        payload=json.dumps(facts),
        paths=tuple(_texts(body, "paths")),
    )


def _texts(body: Mapping[str, Any], name: str) -> list[str]:
    found = body.get(name)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise InvalidInputError(f"{name!r} must be a list of paths")
    return found
