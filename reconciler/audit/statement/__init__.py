"""Signed, chained statements of what an audit found, and their verification."""
