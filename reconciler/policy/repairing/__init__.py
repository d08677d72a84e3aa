"""Step 10: a lost message is sent again, at most once by each rung of the ladder."""
