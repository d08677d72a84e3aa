"""Values for people: until when all commits are accounted for, the life of a message, and notices.

All decisions here are made on values, without asking a server.
"""
