"""What is known of one key: its case file, and the witnesses that add to it. Verdicts and repairs rest on it."""
