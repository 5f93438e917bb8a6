"""What enclaves request with their tokens: certificates, collateral."""
