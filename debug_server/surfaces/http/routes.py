"""Which operation each path answers; what is more than decode, call and encode has a module of its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One operation on one path; a path's names are fields of its request, the rest is the body or the query."""

    method: str
    path: str
    operation: str
    status: int = 200


def _route(line: str) -> Route:
    method, path, operation, *status = line.split()
    return Route(method=method, path=path, operation=operation, status=int(status[0]) if status else 200)


ROUTES = tuple(
    map(
        _route,
        """
        POST   /repository/init                                    register_repository 201
        GET    /repository                                         list_repositories
        GET    /repository/{name}                                  get_repository
        POST   /sessions                                           open_session        201
        GET    /sessions                                           list_sessions
        GET    /sessions/{session_id}                              get_session
        DELETE /sessions/{session_id}                              close_session
        POST   /sessions/{session_id}/fork                         fork_session        201
        POST   /sessions/{session_id}/reset                        reset_session
        POST   /sessions/{session_id}/commands                     submit_command      201
        GET    /sessions/{session_id}/commands                     list_commands
        GET    /sessions/{session_id}/artifacts                    list_artifacts
        GET    /sessions/{session_id}/artifacts/{artifact_id}/info get_artifact
        POST   /sessions/{session_id}/debug                        debug_session
        GET    /commands/{command_id}                              get_command
        GET    /commands/{command_id}/wait                         wait_command
        POST   /commands/{command_id}/cancel                       cancel_command
        POST   /commands/{command_id}/signal                       signal_command
        POST   /commands/{command_id}/stdin                        write_stdin
        GET    /events                                             read_events
        GET    /leases                                             list_leases
        GET    /workers                                            list_workers
        POST   /workers/{worker}/restart                           restart_worker
        POST   /workers/{worker}/reset                             reset_worker
        POST   /workers/{worker}/stop                              stop_worker
        POST   /auth/tokens                                        create_token        201
        GET    /auth/tokens                                        list_tokens
        DELETE /auth/tokens/{token_id}                             revoke_token
        GET    /whoami                                             who_am_i
        """.strip().splitlines(),
    )
)
