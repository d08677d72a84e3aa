"""Tables of audits for readers in SQL: every judged key, findings, counts and runs of many windows."""
