"""The soak: servers and keepers are killed at random while commands start, write and end; then nothing may be missing.

Reading order: ``child`` (the program that commands run), ``planned_commands`` (what is submitted and what must come of
it), ``spawner`` (starts servers), ``keepers`` (finds and kills keepers), ``campaign`` (the killing), ``check`` (the
proof). For workspaces and environments: ``workspace_setup`` (what there is to lease and to build), ``workspace_users``
(the processes that are killed), ``workspace_campaign`` (the killing and the proof). For a full disk: ``full_disk``.
For followers whose connections are cut: ``follow``.
``scripts/soak.py`` and ``scripts/soak_follow.py`` are the long forms, ``tests/integration/test_soak.py`` and
``test_soak_follow.py`` the short ones.
"""
