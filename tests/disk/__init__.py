"""Tests of opening, unmounting and removing what others could tamper with."""
