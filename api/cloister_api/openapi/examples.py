"""One example of each type of the API; a test checks each against its schema."""

from typing import Any

__all__ = ["EXAMPLES"]

ID = "7d3c1a52-8a1e-4e0f-9b57-0c9d3a2f4e10"
OTHER_ID = "2b9f0c64-51aa-4d0b-8e3c-6f1d2a7b9c01"
KEY = "tk_made-up-value-of-an-example-key"
AT = "2026-11-22T08:15:00Z"
PEM = "-----BEGIN CERTIFICATE REQUEST-----\nMIIB…\n-----END CERTIFICATE REQUEST-----\n"

CONTAINER: dict[str, Any] = {
    "id": ID,
    "deployment_id": OTHER_ID,
    "name": "web",
    "repo": "acme/web",
    "status": "ready",
    "domain": "web.acme.containers.example.org",
    "internal_domain": "web.acme.containers.example.org",
    "current_tag": "v1.0.0",
    "requested_tag": "v1.0.0",
    "cpus": 2,
    "gpus": 0,
    "memory_mb": 8192,
    "debug": False,
    "variables": {"GREETING": "Hello"},
    "secrets": ["OPENAI_API_KEY"],
    "ssh_keys": [],
    "staging": False,
    "disable_cc_mode": False,
    "github_app_connected": False,
    "auto_update": False,
    "created_at": AT,
    "updated_at": AT,
    "host_name": "small",
}
MODEL: dict[str, Any] = {
    "modelName": "north",
    "name": "North 8B",
    "nameShort": "North",
    "description": "A small model.",
    "details": "8 billion parameters.",
    "recommendedUse": "Chat.",
    "parameters": "8B",
    "supportedLanguages": "English",
    "image": "north.svg",
    "repo": "acme/north",
    "type": "chat",
    "endpoint": "/v1/chat/completions",
    "endpoints": ["/v1/chat/completions"],
    "usageMetric": "tokens",
    "pricing": {"inputTokenPricePer1M": 0.2, "outputTokenPricePer1M": 0.6, "requestPrice": 0},
    "createdAt": 1_767_225_600,
    "paid": True,
    "multimodal": False,
    "toolCalling": True,
}
COUNTS = {"tokens": 330, "input_tokens": 300, "output_tokens": 30, "requests": 3}
RECORDS: dict[str, Any] = {
    "ContainerResponse": CONTAINER,
    "ContainerUpdateResponse": {
        "has_update": True,
        "update_deployment_id": OTHER_ID,
        "update_tag": "v1.1.0",
        "update_status": "deploying",
    },
    "ContainerStatusResponse": {
        "id": ID,
        "status": "ready",
        "observed": True,
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Serving",
                "message": "v1.0.0 serves.",
                "since": AT,
                "meaning": "The release that spec requests serves.",
            }
        ],
        "history": [
            {
                "enclave": "web-a-1",
                "tag": "v1.0.0",
                "commit": "9fceb02d0ae598e95dc970b74767f19372d61af8",
                "outcome": "Served",
                "at": AT,
            }
        ],
        "unenforced": [],
        "managed_by": [{"manager": "kustomize-controller", "fields": ["repo", "tag"]}],
        "serving": {
            "enclave": "web-a-1",
            "revision": "a",
            "attempt": 1,
            "tag": "v1.0.0",
            "commit": "9fceb02d0ae598e95dc970b74767f19372d61af8",
            "config_digest": f"sha256:{'ab' * 32}",
            "host": "small",
            "boot_stages": [{"name": "config", "status": "ok", "duration_ms": 12}],
            "containers": [{"name": "web", "state": "Running", "restart_count": 0}],
            "phase": "Ready",
            "measurement": f"sha256:{'cd' * 32}",
            "ready_at": AT,
        },
    },
    "EventResponse": {
        "at": AT,
        "type": "Warning",
        "reason": "ImagePull",
        "message": "The node cannot pull the image of web.",
        "count": 1,
    },
    "ContainerMetricsResponse": {
        "interval": "15m0s",
        "data_points": [
            {
                "time": AT,
                "cpu_util": 12.5,
                "cpu_mem_util": 40.0,
                "cpu_mem_total": 8.0,
                "gpu_util": 71.5,
                "gpu_mem_util": 62.5,
                "gpu_mem_total": 80.0,
            },
            {
                "time": AT,
                "cpu_util": None,
                "cpu_mem_util": None,
                "cpu_mem_total": None,
                "gpu_util": None,
                "gpu_mem_util": None,
                "gpu_mem_total": None,
            },
        ],
    },
    "HostResponse": {
        "name": "small",
        "is_default": True,
        "available_gpu_values": [1, 8],
        "tee": "SNP",
        "network_isolation": "Container",
        "ready": True,
        "gpu_type": "H100",
        "cpu_type": "EPYC-Genoa",
    },
    "ReleaseResponse": {
        "tag": "v1.0.0",
        "published_at": AT,
        "prerelease": False,
        "commit": "9fceb02d0ae598e95dc970b74767f19372d61af8",
    },
    "ReleaseVerdictResponse": {
        "valid": True,
        "errors": [],
        "warnings": [],
        "config": {"cpus": 2},
        "deadlines": {"pull_seconds": 3600, "boot_seconds": 2010},
        "commit": "9fceb02d0ae598e95dc970b74767f19372d61af8",
        "published_at": AT,
        "file": {"name": "service-config.yml", "digest": f"sha256:{'ab' * 32}", "lines": {}},
        "secrets": [{"name": "OPENAI_API_KEY", "found": "organization"}],
        "hostname": "web.acme.containers.example.org",
    },
    "NameVerdictResponse": {
        "available": True,
        "name": "web",
        "internal_domain": "web.acme.containers.example.org",
    },
    "MeasurementResponse": {
        "repo": "acme/web",
        "tag": "v1.0.0",
        "commit": "9fceb02d0ae598e95dc970b74767f19372d61af8",
        "config_file": "service-config.yml",
        "digest": f"sha256:{'ab' * 32}",
        "document": {"version": 1},
    },
    "DeploymentResponse": {
        "id": OTHER_ID,
        "repo": "acme/web",
        "default_staging": False,
        "created_at": AT,
        "updated_at": AT,
        "instance_count": 1,
        "ready_count": 1,
        "failed_count": 0,
        "stopped_count": 0,
        "deploying_count": 0,
    },
    "DeploymentResultsResponse": {
        "results": [
            {
                "container_id": ID,
                "name": "web",
                "status": "skipped",
                "error": "instance is not running",
            }
        ]
    },
    "SecretResponse": {
        "id": ID,
        "name": "OPENAI_API_KEY",
        "created_at": AT,
        "updated_at": AT,
        "used_by": ["web"],
        "used_by_containers": [{"id": ID, "name": "web", "debug": False}],
    },
    "SshKeyResponse": {
        "id": ID,
        "name": "laptop",
        "key_type": "ssh-ed25519",
        "created_at": AT,
        "used_by": [],
        "used_by_containers": [],
    },
    "DomainResponse": {
        "id": ID,
        "domain": "api.example.com",
        "verification_nonce": "7f3a",
        "cname_hash": "5d41402abc4b2a76b9719d911017c592",
        "verified": False,
        "verified_at": None,
        "created_at": AT,
        "used_by": [],
        "used_by_containers": [],
        "txt_record_host": "_cloister.api.example.com",
        "txt_record_value": "cloister-verification:api.example.com:7f3a",
        "cname_target": "5d41402abc4b2a76b9719d911017c592.targets.example.org",
        "cname_configured": None,
        "checked_at": None,
        "lost_at": None,
        "message": "",
    },
    "RegistryStatusResponse": {
        "has_credentials": True,
        "username": "ada",
        "updated_at": AT,
        "expired": False,
    },
    "RegistryCredentialsResponse": {
        "ghcr": {"has_credentials": True, "username": "ada", "updated_at": AT, "expired": False},
        "gcr": {"has_credentials": False, "expired": False},
        "dockerhub": {"has_credentials": False, "expired": False},
    },
    "CertificateResponse": {"certificate": PEM.replace(" REQUEST", ""), "not_after": AT},
    "QueuedCertificateResponse": {
        "status": "queued",
        "message": "the order waits for its turn",
        "retry_after": 5,
    },
    "PaymentEventResponse": {"organizations": 1},
    "ReleaseEventResponse": {"deployments": 1},
    "HealthResponse": {"status": "ok"},
    "ReadinessResponse": {"status": "waiting", "for": ["not listed yet"]},
    "ApiKeyResponse": {
        "key": KEY,
        "id": 7,
        "name": "build bot",
        "disabled": False,
        "expires_at": None,
        "max_tokens": 1_000_000,
        "metadata": {"team": "search"},
        "tokens_used": 330,
        "input_tokens_used": 300,
        "output_tokens_used": 30,
        "request_count": 3,
        "is_owner": True,
        "created_at": AT,
        "last_used_at": None,
    },
    "AuditRowResponse": {
        "id": 42,
        "at": AT,
        "request_id": "0f0c6a3e-5b0e-4c79-9d1c-2f5f6f0f7a11",
        "actor": "ada@example.org",
        "key_id": OTHER_ID,
        "action": "container.create",
        "target": ID,
        "result": "201",
    },
    "MessageResponse": {"message": "API key updated"},
    "UsageResponse": {**COUNTS, "cost": 0.0018, "keys": {}},
    "KeyUsageResponse": {
        "prompt_tokens": 300,
        "completion_tokens": 30,
        "requests": 3,
        "cost": 0.0018,
    },
    "TimeSeriesResponse": {
        "data_points": [{"time": AT, **COUNTS, "models": {"north": COUNTS}}],
        "interval": "15m0s",
    },
    "BreakdownResponse": {
        "data_points": [
            {
                "time": AT,
                "groups": [{"key": "build bot", "model": "north", **COUNTS, "cost": 0.0018}],
            }
        ],
        "interval": "15m0s",
    },
    "RunTimeResponse": {
        "metering": True,
        "containers": [
            {
                "container_id": ID,
                "name": "web",
                "cpus": 2,
                "memory_mb": 8192,
                "gpus": 0,
                "seconds": 86400.0,
            }
        ],
    },
    "TransactionsResponse": {"transactions": []},
    "ModelRecord": MODEL,
    "ModelListResponse": {
        "object": "list",
        "data": [
            {
                "id": "north",
                "object": "model",
                "created": MODEL["createdAt"],
                "owned_by": "cloister",
                "type": "chat",
                "multimodal": False,
                "toolCalling": True,
                "pricing": MODEL["pricing"],
                "endpoints": MODEL["endpoints"],
                "usageMetric": "tokens",
            }
        ],
    },
    "UsageReportResponse": {"accepted": 1, "duplicates": 0, "rejected": []},
    "KeyCheckResponse": {"valid": True},
}
BODIES: dict[str, Any] = {
    "CreateContainerRequest": {
        "name": "web",
        "repo": "acme/web",
        "tag": "v1.0.0",
        "variables": {"GREETING": "Hello"},
    },
    "RelaunchRequest": {"tag": "v1.1.0"},
    "AutoUpdateRequest": {"auto_update": False},
    "GithubConnectionRequest": {"enabled": False},
    "ValidateReleaseRequest": {"repo": "acme/web", "tag": "v1.0.0"},
    "ValidateNameRequest": {"name": "web"},
    "ChangeDeploymentRequest": {"default_staging": True},
    "UpdateDeploymentRequest": {"tag": "v1.1.0"},
    "CreateSecretRequest": {"name": "OPENAI_API_KEY", "value": "made-up"},
    "UpdateSecretRequest": {"value": "made-up too"},
    "CreateSshKeyRequest": {
        "name": "laptop",
        "public_key": "ssh-ed25519 "
        "AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ ada@example.org",
    },
    "CreateDomainRequest": {"domain": "api.example.com"},
    "PutRegistryCredentialsRequest": {"username": "ada", "token": "made-up"},
    "CreateApiKeyRequest": {"name": "build bot", "max_tokens": 1_000_000},
    "UpdateApiKeyRequest": {"key": KEY, "name": "build bot 2"},
    "ChangeApiKeyRequest": {"disabled": True},
    "KeyUsageRequest": {"key": KEY},
    "EmptyRequest": {},
    "SignCertificateRequest": {"csr": PEM},
    "CheckKeyRequest": {"api_key": KEY, "domain": "web.acme.containers.example.org"},
    "Report": {
        "delivery_id": "d-1",
        "events": [
            {
                "event_id": "e-1",
                "occurred_at": AT,
                "operation": {"service": "router", "name": "model_request"},
                "api_key": KEY,
                "meters": [{"name": "input_tokens", "quantity": 100}],
                "attributes": {"model": "north"},
            }
        ],
    },
}
EXAMPLES: dict[str, Any] = {**RECORDS, **BODIES}
"""By name of the type."""
