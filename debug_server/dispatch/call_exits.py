"""Exit statuses of the program that makes a grpc runner's call."""

NOT_OK = 1  # the response says that it failed
UNAVAILABLE = 69  # no connection, or it broke during the call
PROTOCOL = 76  # an invalid answer, or an error of the server
UNCONFIGURED = 78  # no such service, method or field
DEADLINE = 124
