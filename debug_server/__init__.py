"""debug-server: runs commands for people and coding agents, and never loses them.

Importing the package loads nothing else: the keeper's fork server starts from here and must stay lean.
"""

__version__ = "0.1.0"
