"""Where events go: one file a sink."""
