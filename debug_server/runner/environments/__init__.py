"""The parts of environments: plan, build, seal, lend, collect; imported by ``runner.environment`` only."""
