"""What the runner programs share: the event they are given, the folder they may touch, how they end."""
