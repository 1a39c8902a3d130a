"""``CommandSpec`` and ``CommandResult`` under the path that users write; they are values of the model."""

from debug_server.model.spec import CommandResult, CommandSpec

__all__ = ["CommandResult", "CommandSpec"]
