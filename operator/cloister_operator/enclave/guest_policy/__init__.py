"""The rules by which the agent of an enclave's machine decides what the host may request of it."""
