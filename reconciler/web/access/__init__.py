"""The identity of visitors, and their rights."""
