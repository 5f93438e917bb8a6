"""The JSON records of the API: from custom resources to what a client reads."""
