"""What commands ask of every service: whether it answers, lets us, and is the one that the settings mean."""
