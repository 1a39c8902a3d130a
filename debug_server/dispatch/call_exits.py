"""How a grpc runner's call ends, as exit statuses of its program."""

NOT_OK = 1  # a response that says so
UNAVAILABLE = 69  # no channel, or it broke during the call
PROTOCOL = 76  # an answer that makes no sense, or an error of the server's
UNCONFIGURED = 78  # no such service, method or field
DEADLINE = 124
