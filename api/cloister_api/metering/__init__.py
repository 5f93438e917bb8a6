"""Metering of run time: how long the enclaves of each container served."""
