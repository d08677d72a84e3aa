"""All answers about one key: a case file, and the witnesses that add answers to it. Verdicts and repairs are decided
from case files.
"""
