"""History: what the service did, as Parquet that nobody can change unnoticed."""
