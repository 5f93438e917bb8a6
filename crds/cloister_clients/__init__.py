"""What both programs reach out with: Kubernetes, repositories, registries, DNS, the clock.

I/O without decisions; the decisions are in `cloister_crds`.
"""
