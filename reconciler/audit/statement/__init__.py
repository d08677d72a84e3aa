"""Signed, chained statements about audits, and their verification."""
