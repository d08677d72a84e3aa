"""Report for people: one HTML file that opens offline."""
