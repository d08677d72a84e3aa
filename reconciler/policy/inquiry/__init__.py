"""What is known about one key: its case file, and the witnesses that add answers to it. Verdicts and repairs are
decided on it.
"""
