"""Known vulnerabilities of what is locked: the Python packages and the Go modules that ship."""

from dev.audit.goprograms import audit_go
from dev.audit.outcome import Outcome, Verdict
from dev.audit.python import audit_python

__all__ = ["Outcome", "Verdict", "audit_go", "audit_python"]
