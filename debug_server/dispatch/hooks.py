"""Pushes and pull requests as a hosting service tells them: the signature checked, the changed paths taken."""

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


def verify(secret: str | None, body: bytes, signature: str | None) -> None:
    """AccessError unless the body was signed with the secret."""
    if not secret:
        raise AccessError(f"hooks are off: set {HOOK_SECRET} for the server and the same secret for the hook")
    if not signature or not signature.startswith(_PREFIX):
        raise AccessError("the header X-Hub-Signature-256: sha256=... is missing: give the hook a secret")
    expected = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(expected.encode(), signature.removeprefix(_PREFIX).encode("utf-8", "replace")):
        raise AccessError("the signature does not fit the body: hook and server have different secrets")


def event_of(repo_name: str, kind: str, body: bytes) -> IssueEvent | None:
    """The event of a verified delivery; None for one that asks for nothing, such as a ping."""
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
    commits = [item for item in _list(body, "commits") if isinstance(item, dict)]
    paths = [
        str(path) for commit in commits for name in ("added", "modified", "removed") for path in _list(commit, name)
    ]
    after = str(body.get("after") or "push")[:40]
    facts = {"ref": body.get("ref"), "before": body.get("before"), "after": body.get("after"), "commits": len(commits)}
    return IssueEvent(
        task_id=after,
        event_type="push",
        repo_name=repo_name,
        field=str(body.get("ref") or ""),
        payload=json.dumps(facts),
        paths=tuple(dict.fromkeys(paths)),
    )


def _pull_request(repo_name: str, body: Mapping[str, Any]) -> IssueEvent:
    request = body.get("pull_request")
    details = request if isinstance(request, dict) else {}
    facts = {"number": body.get("number"), "action": body.get("action"), "title": details.get("title")}
    return IssueEvent(
        task_id=f"pr-{body.get('number')}",
        event_type="pr",
        repo_name=repo_name,
        field=str(body.get("action") or ""),
        payload=json.dumps(facts),
        paths=tuple(str(path) for path in _list(body, "paths")),
    )


def _list(body: Mapping[str, Any], name: str) -> list[Any]:
    found = body.get(name)
    return found if isinstance(found, list) else []
