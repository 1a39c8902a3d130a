"""The soak: servers and keepers are killed at random while commands start, write and end; then nothing may be missing.

Reading order: ``child`` (the program that commands run), ``orders`` (what is submitted and what must come of it),
``nursery`` (starts servers), ``keepers`` (finds and kills keepers), ``campaign`` (the killing), ``check`` (the proof).
For workspaces and environments: ``workplace`` (what there is to lease and to build), ``tenants`` (the processes that
are killed), ``tenancy`` (the killing and the proof). For a disk that is full: ``full_disk``.
``scripts/soak.py`` is the long form, ``tests/integration/test_soak.py`` the short one.
"""
