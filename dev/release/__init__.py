"""A release: images, chart, manifest, plugin, bills, checksums and signatures of one commit.

``python -m dev.release`` is the command of `make release`.
"""
