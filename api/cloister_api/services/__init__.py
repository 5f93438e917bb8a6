"""The services behind the routes: checks, writes of custom resources, reads of the cache."""
