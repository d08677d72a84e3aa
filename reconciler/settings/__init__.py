"""The settings of the reconciler, as typed values that are read from a file and the environment."""
