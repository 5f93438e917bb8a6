"""The contract: kinds, lifecycle and configuration file. Pure: no I/O, no clock."""
