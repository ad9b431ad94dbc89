"""The HTTP side of the server: connections, authentication, limits, request bodies, errors, logs, metrics."""
