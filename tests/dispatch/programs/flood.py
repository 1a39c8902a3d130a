"""Writes 100 MB (or DISPATCH_FIELD megabytes) of numbered lines, then a last one that can be looked for."""

import os
import sys

field = os.environ.get("DISPATCH_FIELD", "")
megabytes = int(field) if field.isdigit() else 100
size = 1000  # bytes of a line
for number in range(megabytes * 1000):
    sys.stdout.write(f"{number:010d} ".ljust(size - 1, "x") + "\n")
sys.stdout.write("the last line\n")
sys.stdout.flush()
