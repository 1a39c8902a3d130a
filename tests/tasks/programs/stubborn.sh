#!/bin/bash
# Ignores TERM, and has children that do, in sessions and groups of their own. $1 marks every process of it.
trap '' TERM HUP INT
setsid bash -c 'trap "" TERM; while :; do sleep 1000; done' "$1" &
(setsid bash -c 'trap "" TERM; sleep 1000 & wait' "$1" &) &
while :; do sleep 1000; done
