"""What must happen although nobody asks: leases renewed, idle sessions closed, the work of dead owners carried on.

Everything here is safe to do twice and in several processes at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from debug_server.engine.ages import Ages
from debug_server.engine.attempts import attempt
from debug_server.engine.sessions import Sessions
from debug_server.engine.upkeep import Upkeep
from debug_server.errors import ConflictError, LeaseLostError
from debug_server.model import Command, Session, SessionStatus
from debug_server.runner.worker import WorkerSupervisor
from debug_server.store import MetadataStore

_LOG = logging.getLogger(__name__)
_EVERY_SECONDS = 20.0
_JOIN_SECONDS = 10.0
_CLOSE_SECONDS = 60.0  # beside the grace: a pre-kill hook, and what the kernel does not let die at once
IDLE = timedelta(hours=24)  # without a command and without a use by its owner


class Housekeeper:
    """A thread that looks around every twenty seconds."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        sessions: Sessions,
        supervisor: WorkerSupervisor,
        cancel: Callable[[int, str], Command],
        wait: Callable[[int, float], Command],
        ages: Ages | None = None,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._upkeep = Upkeep(store=store, sessions=sessions, supervisor=supervisor)
        self._close_seconds = supervisor.settings.kill_grace + _CLOSE_SECONDS
        self._cancel = cancel
        self._wait = wait
        self._ages = ages or Ages()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, recover: Callable[[], object]) -> None:
        """Begin; ``recover`` carries on what dead owners left, and was done just now."""
        self._sessions.close_abandoned()
        self._sessions.catch_up()
        self._thread = threading.Thread(target=self._run, args=(recover,), name="housekeeper", daemon=True)
        self._thread.start()
        self._upkeep.start()

    def stop(self) -> None:
        """End after the round that is under way."""
        self._done.set()
        self._upkeep.stop()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def _run(self, recover: Callable[[], object]) -> None:
        self._round(recover)  # at once: what a server that was killed had ended and not concluded must not wait
        self._upkeep.wake()  # the leases of open sessions are renewed now
        while not self._done.wait(_EVERY_SECONDS):
            self._round(recover)

    def _round(self, recover: Callable[[], object]) -> None:
        attempt("housekeeping_failed", recover)  # what fails the next round tries again
        attempt("housekeeping_failed", self.tidy)

    def tidy(self) -> list[int]:
        """One round over the open sessions; returns those that were closed."""
        found = self._sessions.open_sessions()
        return [row.id for row in found if attempt("housekeeping_failed", partial(self._tend, row), session_id=row.id)]

    def _tend(self, session: Session) -> bool:
        commands = self._store.commands.in_session(session.id)
        busy = [command for command in commands if not command.status.terminal]
        if self._is_expired(session):
            self.close(session, SessionStatus.CANCELLED)
            return True
        if not busy and any(command.plan.closes_session for command in commands):
            self._sessions.conclude(commands[-1])
            return True
        if self._sessions.settle(session):
            return True
        if not busy and self._is_idle(session, commands):
            self.close(session, SessionStatus.COMPLETED)
            return True
        if session.worktree_id is not None:
            self._renew(session)
        return False

    def _is_expired(self, session: Session) -> bool:
        ends = session.expires_at
        return ends is not None and self._ages.of(session.created_at) >= ends - session.created_at

    def _is_idle(self, session: Session, commands: list[Command]) -> bool:
        signs = [session.updated_at, *(command.updated_at for command in commands)]
        return all(self._ages.of(sign) >= IDLE for sign in signs)

    def _renew(self, session: Session) -> None:
        try:
            self._sessions.lease(session).renew()
        except LeaseLostError as error:
            _LOG.warning("lease_lost", extra={"session_id": session.id, "error": str(error)})
            self.close(session, SessionStatus.FAILED)

    def close(self, session: Session, status: SessionStatus) -> None:
        """End a session's commands, wait for their trees to be empty, release its workspace.

        ConflictError when one of them has not ended in time: then the session stays open, with its workspace.
        """
        unfinished = [row for row in self._store.commands.in_session(session.id) if not row.status.terminal]
        for row in unfinished:
            self._cancel(row.id, "its session was closed")
        deadline = time.monotonic() + self._close_seconds
        left = [row.id for row in unfinished if not self._ends_by(row.id, deadline)]
        if left:
            raise ConflictError(
                f"session {session.id} cannot be closed yet: command {left[0]} has been asked to end and still runs; "
                "try again later"
            )
        self._sessions.close(session, status=status)

    def _ends_by(self, command_id: int, deadline: float) -> bool:
        return self._wait(command_id, max(0.0, deadline - time.monotonic())).status.terminal
