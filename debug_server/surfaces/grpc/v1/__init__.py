"""Messages generated from ``proto/debug_server/v1`` by ``make protos``: do not edit."""
