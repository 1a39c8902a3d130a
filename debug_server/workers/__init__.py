"""Long-lived processes: policy (backoff, budget, readiness, drain) over the runner's keeper in relay mode.

Imports runner and what is below it; starts no process itself. Used by service, gateway and the composition root.
"""
