"""Steps 8 and 9: select the pending keys to look at, and judge each."""
