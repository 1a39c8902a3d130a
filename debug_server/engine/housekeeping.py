"""Periodic work on sessions: renews leases, closes idle and expired sessions, recovers commands of dead owners.

Every step may be repeated, and several processes may do it at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from debug_server.engine.elapsed import ElapsedTime
from debug_server.engine.maintenance import Maintenance
from debug_server.engine.run_or_log import run_or_log
from debug_server.engine.sessions import Sessions
from debug_server.errors import LeaseLostError, StillRunningError
from debug_server.model import Command, Session, SessionStatus
from debug_server.runner.worker import WorkerSupervisor
from debug_server.store import MetadataStore

_LOG = logging.getLogger(__name__)
_EVERY_SECONDS = 20.0
_JOIN_SECONDS = 10.0
_CLOSE_SECONDS = 60.0  # in addition to the grace: a pre-kill hook, and processes that the kernel ends slowly
IDLE = timedelta(hours=24)  # close a session that was not used for so long and has no unfinished command


class Housekeeper:
    """A thread that does one round every twenty seconds."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        sessions: Sessions,
        supervisor: WorkerSupervisor,
        cancel: Callable[[int, str], Command],
        wait: Callable[[int, float], Command],
        elapsed: ElapsedTime | None = None,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._maintenance = Maintenance(store=store, sessions=sessions, supervisor=supervisor)
        self._close_seconds = supervisor.settings.kill_grace + _CLOSE_SECONDS
        self._cancel = cancel
        self._wait = wait
        self._elapsed = elapsed or ElapsedTime()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, recover: Callable[[], object]) -> None:
        """Start the thread, which calls ``recover`` in each round to take over commands of dead owners."""
        self._sessions.close_abandoned()
        self._sessions.copy_missing_artifacts()
        self._thread = threading.Thread(target=self._run, args=(recover,), name="housekeeper", daemon=True)
        self._thread.start()
        self._maintenance.start()

    def stop(self) -> None:
        """Stop after the current round."""
        self._done.set()
        self._maintenance.stop()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def _run(self, recover: Callable[[], object]) -> None:
        self._round(recover)  # at once: commands of a killed server may have ended without their follow-up
        self._maintenance.wake()  # the leases of open sessions are renewed now
        while not self._done.wait(_EVERY_SECONDS):
            self._round(recover)

    def _round(self, recover: Callable[[], object]) -> None:
        run_or_log("housekeeping_failed", recover)  # a failure is retried in the next round
        run_or_log("housekeeping_failed", self.check_sessions)

    def check_sessions(self) -> list[int]:
        """Check every open session; returns those that were closed."""
        found = self._sessions.open_sessions()
        return [
            row.id
            for row in found
            if run_or_log("housekeeping_failed", partial(self._check_session, row), session_id=row.id)
        ]

    def _check_session(self, session: Session) -> bool:
        """Close a session that is expired, has ended its only command, is abandoned or idle; else renew its lease.

        The conditions are checked in this order; returns whether the session was closed.
        """
        if self._is_expired(session):
            self.close(session, SessionStatus.CANCELLED)
            return True
        busy = self._store.commands.unfinished(session.id)
        newest = self._store.commands.newest_in_session(session.id)
        if not busy and newest is not None and newest.plan.closes_session:
            self._sessions.follow_up(newest)
            return True
        if self._sessions.close_if_abandoned(session):
            return True
        if not busy and self._is_idle(session, newest):
            self.close(session, SessionStatus.COMPLETED)
            return True
        if session.worktree_id is not None:
            self._renew(session)
        return False

    def _is_expired(self, session: Session) -> bool:
        expires_at = session.expires_at
        return expires_at is not None and self._elapsed.since(session.created_at) >= expires_at - session.created_at

    def _is_idle(self, session: Session, newest: Command | None) -> bool:
        """Whether nothing of it changed for a day; its commands are read only if the newest one did not, either."""
        if self._elapsed.since(session.updated_at) < IDLE:
            return False
        if newest is None:
            return True
        if self._elapsed.since(newest.updated_at) < IDLE:
            return False
        changed_at = self._store.commands.last_change(session.id)
        return changed_at is None or self._elapsed.since(changed_at) >= IDLE

    def _renew(self, session: Session) -> None:
        try:
            self._sessions.lease(session).renew()
        except LeaseLostError as error:
            _LOG.warning("lease_lost", extra={"session_id": session.id, "error": str(error)})
            self.close(session, SessionStatus.FAILED)

    def close(self, session: Session, status: SessionStatus | None = None) -> None:
        """Cancel a session's commands, wait until their trees are empty, release its workspace.

        Without a status it is ``completed`` if all its commands have ended, and ``cancelled`` if one has not, or if
        there was none. StillRunningError if a command does not end in time: the session stays open and keeps its
        workspace.
        """
        unfinished = self._store.commands.unfinished(session.id)
        for row in unfinished:
            self._cancel(row.id, "its session was closed")
        deadline = time.monotonic() + self._close_seconds
        left = [row.id for row in unfinished if not self._ends_by(row.id, deadline)]
        if left:
            raise StillRunningError(
                f"session {session.id} cannot be closed yet: command {left[0]} was cancelled but is still running; "
                "try again later"
            )
        is_completed = not unfinished and self._store.commands.newest_in_session(session.id) is not None
        default = SessionStatus.COMPLETED if is_completed else SessionStatus.CANCELLED
        self._sessions.close(session, status=status or default)

    def _ends_by(self, command_id: int, deadline: float) -> bool:
        return self._wait(command_id, max(0.0, deadline - time.monotonic())).status.terminal
