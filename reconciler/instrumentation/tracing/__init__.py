"""Rounds, verifications and repairs as spans. Loaded only with tracing.enabled; needs the extra `otel`."""
