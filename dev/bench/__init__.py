"""Benchmarks of the API, the configuration file's parser and the operator."""
