"""Transactional messages: halves, END_TRANSACTION, and the answer to a check-back."""
