"""The vectorised judgement of one prefix."""
