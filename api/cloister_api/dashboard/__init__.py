"""The dashboard: pages for people, made of the same services as the routes of the REST API."""
