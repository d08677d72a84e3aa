"""The HTTP API and the console: requests in, the commands' own functions behind, documents and pages out.

The only part besides `embedded` that runs an event loop. Handlers are plain functions that run in threads.
"""
