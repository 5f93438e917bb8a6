"""Every write of the operator: fencing, merge patches, Events."""
