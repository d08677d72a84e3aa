"""Step 10: a *repair* sends a lost message again, by one rung of the ladder after the other, and then verifies its
effect.
"""
