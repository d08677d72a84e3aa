"""Rounds, verifications and repairs as spans. Loaded with tracing.enabled only; need the extra `otel`."""
