"""The settings of the service: typed values, and the file and environment that they are read from."""
