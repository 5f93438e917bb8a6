"""The rules of the configuration file, a module for each noun.

Each module has the `Table` of its map, or the readers of its fields; `rules.file` puts them
together. A rule reports through its `Spot` and never raises.
"""
