"""A writer whose disk is full: a file size limit stands in for it, and is lifted later.

Usage: fill_disk.py LOG LIMIT_BYTES; prints ``full OFFSET`` when a write failed, goes on after a line on stdin.
"""

from __future__ import annotations

import resource
import sys

from debug_server.runner.log_format import STDERR, STDOUT, LogWriter

PIECE = bytes(range(256)) * 40


def main() -> None:
    """Fill, fail, report, wait, repeat the failed write, end."""
    writer = LogWriter(sys.argv[1])
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), hard))
    try:
        while True:
            writer.write(STDOUT, PIECE)
    except OSError:
        sys.stdout.write(f"full {writer.offset}\n")
        sys.stdout.flush()
    sys.stdin.readline()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    writer.write(STDERR, PIECE)
    writer.end()
    writer.close()


if __name__ == "__main__":
    main()
