"""An evidence folder: its document, which files are believed, and what is planned from it."""
