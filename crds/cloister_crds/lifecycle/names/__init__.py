"""Host names and custom domains of a Container."""
