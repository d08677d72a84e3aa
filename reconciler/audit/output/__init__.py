"""The folder that an audit leaves."""
