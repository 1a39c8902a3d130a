"""Writes one line of 3 MB without an end, control characters and bytes that are no UTF-8."""

import sys

out = sys.stdout.buffer
out.write(b"\x1b[31mred\x00\x07 \xff\xfe \xf0\x9f\x98")
out.flush()
out.write(b"\x80 y" * 1_000_000)
out.flush()
