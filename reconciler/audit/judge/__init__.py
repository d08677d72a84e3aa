"""Judgement of the evidence: one prefix at a time, vectorised. Then the prefixes are merged."""
