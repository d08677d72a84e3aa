"""`reconciler group rename` gives a consumer group another name. Other commands report renamed groups."""
