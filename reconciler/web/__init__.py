"""The HTTP API and the console: requests go in, functions of the commands do the work, documents and pages come out.

Besides `embedded`, only this part runs an event loop. Handlers are plain functions on threads.
"""
