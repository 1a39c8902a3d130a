"""The verbs that every surface calls, as the table of operations in ``messages`` lists them.

Imported by surfaces, ``dispatch``, ``tasks`` and ``app``. Asynchronous above, synchronous below: calls into the store
and the engine go to threads here and nowhere else.
"""

from debug_server.service.caller import LOCAL, Caller
from debug_server.service.errors_table import ERRORS, ErrorMapping, mapping_of
from debug_server.service.service import Service

__all__ = ["ERRORS", "LOCAL", "Caller", "ErrorMapping", "Service", "mapping_of"]
