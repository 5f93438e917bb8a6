"""JSON on the wire: strict parsing of requests, encoding of responses."""
