"""Project rules that no other tool checks, and the generated files."""
