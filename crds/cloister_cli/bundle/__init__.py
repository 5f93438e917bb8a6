"""``cloister support-bundle``: what somebody who helps needs to see, without secrets."""
