"""Channels of notices to people: one adapter per kind of receiver (ports.NoticeChannel). The policy decides what is
sent when."""
