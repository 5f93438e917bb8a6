"""Lookups outside the informer cache: releases, images, cluster addresses, API versions."""
