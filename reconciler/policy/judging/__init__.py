"""Steps 8 and 9: which pending keys are looked at, and the verdict on each."""
