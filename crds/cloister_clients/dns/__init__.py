"""DNS: what the servers that own a zone say, past every cache."""

from cloister_clients.dns.authoritative import AuthoritativeDns, DnsError
from cloister_clients.dns.settings import DnsSettings

__all__ = ["AuthoritativeDns", "DnsError", "DnsSettings"]
