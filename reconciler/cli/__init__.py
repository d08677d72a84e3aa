"""The command line. Data goes to standard output, people's text and logs to standard error."""
