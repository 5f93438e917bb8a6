"""The container images that are released: ``python -m dev.images``, the command of `make images`.

`base.lock` names the Debian packages of the base, `uv.lock` the Python ones, `go.sum` the Go ones;
the same commit gives the same digests.
"""
