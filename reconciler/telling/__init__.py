"""What people read: until when all commits are accounted for, a message's life, notices. All decisions are made on
values alone.
"""
