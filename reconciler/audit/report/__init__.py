"""The page for people: one HTML file that opens offline."""
