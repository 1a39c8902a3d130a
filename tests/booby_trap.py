"""A repository that wants to run something through whoever's git works on it."""

from __future__ import annotations

from pathlib import Path

ATTRIBUTES = "* filter=evil diff=evil merge=evil\n"  # for `.gitattributes`: they name the drivers of the trap
_HOOKS = (
    *("post-checkout", "post-index-change", "reference-transaction", "pre-commit", "post-merge", "post-commit"),
    *("prepare-commit-msg", "commit-msg", "post-rewrite", "pre-auto-gc"),
)


def booby_trap(git_dir: Path, mark: Path) -> None:
    """Every way we know by which git runs a program that a repository names; the program makes ``mark``."""
    program = git_dir / "trap.sh"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >>{mark}\ncat\n')
    program.chmod(0o755)
    settings = (
        f"[core]\n\tfsmonitor = {program}\n\thooksPath = {git_dir}/hooks\n\tsshCommand = {program}\n"
        f"\teditor = {program}\n\tpager = {program}\n\talternateRefsCommand = {program}\n"
        f'[filter "evil"]\n\tclean = {program}\n\tsmudge = {program}\n\tprocess = {program}\n\trequired = true\n'
        f'[diff "evil"]\n\ttextconv = {program}\n\tcommand = {program}\n[diff]\n\texternal = {program}\n'
        f'[merge "evil"]\n\tdriver = {program}\n[sequence]\n\teditor = {program}\n'
        f"[gpg]\n\tprogram = {program}\n[commit]\n\tgpgSign = true\n[interactive]\n\tdiffFilter = {program}\n"
        f"[uploadpack]\n\tpackObjectsHook = {program}\n[credential]\n\thelper = {program}\n"
        f'[remote "origin"]\n\turl = {git_dir}\n\tuploadpack = {program}\n\tpromisor = true\n'
    )
    for name in ("config", "config.worktree", "included"):
        kept = (git_dir / name).read_text() if (git_dir / name).exists() else ""
        (git_dir / name).write_text(kept + settings)
    with (git_dir / "config").open("a") as config:
        config.write(f"[extensions]\n\tworktreeConfig = true\n[include]\n\tpath = {git_dir}/included\n")
    hooks = git_dir / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in _HOOKS:
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >>{mark}\n")
        (hooks / name).chmod(0o755)
