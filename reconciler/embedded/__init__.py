"""A RocketMQ broker and name server in one Python process, for demos and tests. This file imports nothing.

``from reconciler.embedded.server import EmbeddedBroker`` starts one inside the process. ``python -m
reconciler.embedded`` or ``reconciler broker`` starts one as a process of its own.
"""
