"""Complains on both streams and ends with status 3."""

import sys

sys.stdin.buffer.read()
print("about to fail", flush=True)
print("the reason is three", file=sys.stderr, flush=True)
sys.exit(3)
