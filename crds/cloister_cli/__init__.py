"""The command ``cloister``: what a person types."""
