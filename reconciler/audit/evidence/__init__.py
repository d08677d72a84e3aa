"""Evidence folder: its document, which files are believed, and the plan made of it."""
