"""The three jobs of the infra runner: ignore rules, the repository's lock, reverting a commit."""
