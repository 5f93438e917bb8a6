"""The site of the documentation, which `make docs` builds."""
