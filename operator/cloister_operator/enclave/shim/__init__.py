"""Builders of the documents of the shim and of the part that decrypts bodies for it."""
