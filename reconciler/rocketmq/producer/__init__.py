"""Transactional messages: halves, END_TRANSACTION, and answers to check-backs."""
