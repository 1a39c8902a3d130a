"""Which run goes where and when: the product's only queue.

Imported by ``service`` and ``app``. ``local`` runs it in one process on one machine; a distributed engine replaces this
package alone.
"""

from debug_server.engine.local import LocalEngine
from debug_server.engine.sessions import Sessions
from debug_server.engine.workspace import SessionWorkspace, session_workspace

__all__ = ["LocalEngine", "SessionWorkspace", "Sessions", "session_workspace"]
