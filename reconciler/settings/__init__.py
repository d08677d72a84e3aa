"""The settings of the reconciler: typed values, and the file and environment that they are read from."""
