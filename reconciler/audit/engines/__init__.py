"""Engines: they compute an audit in this process or on Spark."""
