"""The gRPC surface: the verbs of ``debug_server.v1`` with health and reflection.

Imported by ``app`` level only; imports ``service`` and nothing below it.
"""

from debug_server.surfaces.grpc.server import ConnectionLimits, GrpcServer, Tls, build_server

__all__ = ["ConnectionLimits", "GrpcServer", "Tls", "build_server"]
