"""A RocketMQ broker and name server in one Python process, for demos and tests; nothing is imported here.

``from reconciler.embedded.server import EmbeddedBroker`` starts one inside the process,
``python -m reconciler.embedded`` or ``reconciler broker`` as a process of its own.
"""
