"""The push consumer: assignment of queues, pulling, retries and offsets."""
