"""What people are told: until when all is accounted for, a message's life, notices. Decisions on values alone."""
