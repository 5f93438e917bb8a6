"""What containers need beside themselves: deployments, secrets, SSH keys, domains, credentials."""
