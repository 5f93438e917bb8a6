"""A virtual machine with a measured boot: OVMF, QEMU and swtpm, and a part of an enclave in it."""
