#!/bin/bash
# Writes on both streams as fast as it can until it is ended, at most 100 MB on each.
yes "standard output" | head -c 100000000 &
yes "standard error" | head -c 100000000 >&2
wait
