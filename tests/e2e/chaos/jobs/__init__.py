"""Jobs that misbehave as their payload says."""
