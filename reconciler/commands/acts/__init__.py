"""Acts by hand. Each act is recorded before it is done, and its result afterwards. Long acts are done by jobs."""
