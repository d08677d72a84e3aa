"""Where an audit is computed: in this process or on Spark."""
