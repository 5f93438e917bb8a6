"""The syntax of the configuration file: YAML nodes with positions, scalars, units."""
