"""The pages for people: what this server is, and the reference of its API.

They are plain HTML without scripts and load nothing from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code, pre { font: 14px/1.5 ui-monospace, monospace }
pre { padding: .6rem .8rem; border: 1px solid #8886; border-radius: 6px; overflow-x: auto }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #8883 }
summary { cursor: pointer; padding: .3rem 0 }
summary b { display: inline-block; min-width: 4.5rem }
details > div { margin: 0 0 1rem 1rem }
"""
SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
}
_LINKS = (
    ("/docs", "reference of the HTTP API"),
    ("/openapi.json", "the same as OpenAPI 3.1"),
    ("/healthz", "health, with details"),
    ("/readyz", "whether the server can run commands now"),
)


def front_page(title: str, version: str, host: str) -> str:
    """The page at ``/`` for a browser."""
    links = "".join(f'<li><a href="{path}">{path}</a>: {escape(about)}</li>' for path, about in _LINKS)
    body = f"<h1>{escape(title)} {escape(version)}</h1><p>{escape(_ABOUT)}</p><ul>{links}</ul>"
    return _page(title, f"{body}<pre>{escape(_example(host))}</pre>")


def front_text(title: str, version: str, host: str) -> str:
    """The same for a terminal."""
    links = "".join(f"  {path:<14} {about}\n" for path, about in _LINKS)
    return f"{title} {version}\n\n{_ABOUT}\n\n{links}\n{_example(host)}\n"


_ABOUT = "Runs commands on commits and patches of git repositories, streams their logs, and keeps their history."


def _example(host: str) -> str:
    return (
        "In an empty folder, answered with the output:\n\n"
        f"curl http://{host}/api/v1/exec -H 'Authorization: Bearer TOKEN' \\\n"
        """  -d '{"argv": ["echo", "hello"]}'\n\n"""
        "In a workspace of a registered repository:\n\n"
        f"curl 'http://{host}/api/v1/runs?wait=60' -H 'Authorization: Bearer TOKEN' \\\n"
        """  -d '{"repository": "NAME", "commit": "HEAD", "argv": ["python3", "-c", "print(6 * 7)"]}'"""
    )


def reference_page(document: dict[str, Any]) -> str:
    """The OpenAPI document as a page: operations by tag, then the schemas."""
    info, schemas = document["info"], document["components"]["schemas"]
    groups: dict[str, list[str]] = {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method != "servers":
                groups.setdefault(operation["tags"][0], []).append(_operation(method, path, operation))
    sections = "".join(
        f"<h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>{''.join(groups[tag['name']])}"
        for tag in document["tags"]
    )
    errors = _table(
        ("status", "", "content"), [_response(*item) for item in document["components"]["responses"].items()]
    )
    servers = " ".join(
        f"<li><code>{escape(one['url'])}</code>: {escape(one['description'])}</li>" for one in document["servers"]
    )
    shown = "".join(
        _details(name, f"<code>{escape(name)}</code>", _schema(schema)) for name, schema in sorted(schemas.items())
    )
    head = f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>"
    body = f"{head}<p>Paths are below:</p><ul>{servers}</ul>{sections}<h2>errors</h2>{errors}<h2>schemas</h2>{shown}"
    return _page(f"{info['title']}: reference", body)


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [
        f"<p>{escape(operation.get('description', ''))} Operation: <code>{escape(operation['operationId'])}</code></p>"
    ]
    if rows := [_parameter(parameter) for parameter in operation.get("parameters", ())]:
        parts.append(_table(("parameter", "in", "type", ""), rows))
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Body, <code>{escape(kind)}</code>:</p>{_schema(content.get('schema', {}))}")
    rows = [_response(code, item) for code, item in operation["responses"].items() if "$ref" not in item]
    parts.append(_table(("status", "", "content"), rows))
    line = f"<b>{method.upper()}</b> <code>{escape(path)}</code> {escape(operation['summary'])}"
    return _details(operation["operationId"], line, "".join(parts))


def _details(name: str, line: str, body: str) -> str:
    """A line that opens to show more; both are HTML."""
    return f'<details id="{escape(name)}"><summary>{line}</summary><div>{body}</div></details>'


def _parameter(parameter: dict[str, Any]) -> tuple[str, ...]:
    schema = parameter.get("schema", {})
    about = parameter.get("description") or schema.get("description", "")
    required = "required. " if parameter.get("required") and parameter["in"] != "path" else ""
    return (f"<code>{escape(parameter['name'])}</code>", parameter["in"], _type(schema), escape(required + about))


def _response(code: str, response: dict[str, Any]) -> tuple[str, ...]:
    kinds = [
        f"<code>{escape(kind)}</code> {_type(content.get('schema', {}))}"
        for kind, content in response.get("content", {}).items()
    ]
    return (code, escape(response["description"]), "<br>".join(kinds))


def _schema(schema: dict[str, Any]) -> str:
    """A schema as a table of its properties, or as its type."""
    about = f"<p>{escape(schema['description'])}</p>" if "description" in schema else ""
    if not (properties := schema.get("properties")):
        return f"{about}<p>{_type(schema)}</p>"
    required = schema.get("required", ())
    rows = [
        (f"<code>{escape(name)}</code>", _type(about), escape(_note(about, required=name in required)))
        for name, about in properties.items()
    ]
    return about + _table(("field", "type", ""), rows)


def _note(schema: dict[str, Any], *, required: bool) -> str:
    default = schema.get("default")
    parts = ["required." if required else "", f"default {default}." if default not in (None, "", [], {}) else ""]
    return " ".join(part for part in (*parts, schema.get("description", "")) if part)


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few characters."""
    if reference := schema.get("$ref"):
        name = escape(reference.rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if options := schema.get("anyOf"):
        return " or ".join(_type(option) for option in options)
    if "enum" in schema:
        return escape(" | ".join(map(str, schema["enum"])))
    kind = str(schema.get("type", "any"))
    return f"{kind} of {_type(schema['items'])}" if kind == "array" and "items" in schema else escape(kind)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table; the cells are HTML."""
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>{cells}</table>"


def _page(title: str, body: str) -> str:
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head><body>{body}</body></html>\n'
