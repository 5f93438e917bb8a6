"""Resources of containers: deployments, secrets, SSH keys, domains, credentials."""
