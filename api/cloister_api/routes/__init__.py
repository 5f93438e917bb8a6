"""The paths of the API: they parse, call a service, and write the answer."""
