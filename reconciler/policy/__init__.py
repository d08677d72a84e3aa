"""The idea: which messages were committed and not delivered, and what is done about each. Decisions on values alone."""
