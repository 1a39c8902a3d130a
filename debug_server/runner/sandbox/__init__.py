"""What confines a command: one file for each technology of the kernel, used by the process that becomes the command.

The server plans (``runner/isolation.py``), the keeper's child applies: a step that fails ends the start, never quietly.

    capabilities.py   rights of root, and new privileges through programs
    landlock.py       rules on files, and on signals and sockets outside
    seccomp.py        system calls that no ordinary program needs
    namespaces.py     own users, processes, mounts, network; the first process in them
    root.py           the file system that a command sees
    confine.py        applies a plan in the right order
    probe.py          which of them work on this machine
"""
