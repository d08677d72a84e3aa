"""The tables of an audit: every judged key, findings, counts and runs of many windows, for readers in SQL."""
