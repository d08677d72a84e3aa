"""The idea: decides which messages were committed and not delivered, and how each is repaired. All decisions are made
on values alone.
"""
