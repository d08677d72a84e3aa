"""The command line. Data goes to standard output; texts for people and logs go to standard error."""
