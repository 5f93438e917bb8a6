"""Tools for those who work on Cloister: the local cluster, the demo, benchmarks, checks."""
