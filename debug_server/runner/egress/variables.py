"""The environment variables that lead programs to the proxy."""

from __future__ import annotations

_DIRECT = "localhost,127.0.0.1,::1"  # the command's own servers, in its own namespace


def variables(port: int) -> dict[str, str]:
    """For the environment of a command whose proxy listens on 127.0.0.1 at ``port``, in both cases that programs read.

    The address is given as a number, so that no program needs DNS to find the proxy.
    """
    proxy = f"http://127.0.0.1:{port}"
    found = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "ALL_PROXY": proxy, "NO_PROXY": _DIRECT}
    return found | {name.lower(): value for name, value in found.items()}
