"""What pages show, decided apart from how it is rendered."""
