"""The description of the API: an OpenAPI document, and the same as a page for people."""
