"""The idea: finds which messages were committed and not delivered, and what to do about each. All decisions are made on
values alone.
"""
