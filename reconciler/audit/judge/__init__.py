"""Judgement of the evidence. Each prefix is judged with vectorised code.

Then the results of the prefixes are merged.
"""
