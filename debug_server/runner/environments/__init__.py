"""The modules behind ``runner.environment``: plan, build, seal, lease and collect environments."""
