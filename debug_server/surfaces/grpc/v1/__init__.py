"""Messages generated from ``proto/debug_server/v1`` by ``make protos``; written by nobody."""
