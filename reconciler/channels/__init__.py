"""Channels of notices to people. Each kind of receiver has one adapter (ports.NoticeChannel). The policy decides which
notices are sent, and when."""
