"""History: the service's announcements, rounds, verdicts and repairs, as Parquet whose changes are noticed."""
