"""The informer cache: projections of watched objects, and what is parsed from them."""
