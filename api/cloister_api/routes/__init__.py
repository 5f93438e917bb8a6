"""The routes of the API: they parse, call a service, and encode the response."""
