"""What makers of processors publish about them, cached for enclaves (docs/measurement.md)."""
