"""A consumer group gets another name: `reconciler group rename`, and what other commands say of it."""
