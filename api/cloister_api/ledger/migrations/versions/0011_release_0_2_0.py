"""The ledger of release 0.2.0."""

import sqlalchemy as sa
from alembic import op

from cloister_api.ledger.tables import UtcTime

revision = "0011"
down_revision = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables, and the rows that are counted up."""
    _admin_keys()
    _api_keys()
    _certificates()
    _replicas()
    _usage_events()
    _usage_sums()
    _dead_letters()
    _runtime()


def _admin_keys() -> None:
    """Create admin keys and the audit trail."""
    op.create_table(
        "admin_keys",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("key_index", sa.LargeBinary(32), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("last_four", sa.String(4), nullable=False),
        sa.Column("name", sa.String(253), nullable=False),
        sa.Column("organization", sa.String(253), nullable=False),
        sa.Column("organization_id", sa.String(64), nullable=False),
        sa.Column("created_by", sa.String(253), nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("expires_at", UtcTime, nullable=True),
        sa.Column("revoked_at", UtcTime, nullable=True),
        sa.Column("revoked_because", sa.Text(), nullable=True),
        sa.Column("last_used_at", UtcTime, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_admin_keys"),
        sa.UniqueConstraint("key_index", name="uq_admin_keys_key_index"),
    )
    op.create_index("ix_admin_keys_organization", "admin_keys", ["organization"])
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.Column("request_id", sa.String(128), nullable=False),
        sa.Column("organization", sa.String(253), nullable=False),
        sa.Column("actor", sa.String(253), nullable=False),
        sa.Column("key_id", sa.String(36), nullable=True),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("target", sa.String(253), nullable=False),
        sa.Column("result", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_organization_at", "audit", ["organization", "at"])
    op.create_index("ix_audit_target_action", "audit", ["target", "action"])


def _api_keys() -> None:
    """Create API keys, their use, and reporters of usage."""
    op.create_table(
        "api_keys",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("key_index", sa.LargeBinary(32), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("shown", sa.String(8), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("organization", sa.String(253), nullable=False),
        sa.Column("organization_id", sa.String(64), nullable=False),
        sa.Column("created_by", sa.String(253), nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("expires_at", UtcTime, nullable=True),
        sa.Column("max_tokens", sa.BigInteger(), nullable=True),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("deleted_at", UtcTime, nullable=True),
        sa.Column("last_used_at", UtcTime, nullable=True),
        sa.Column("change", sa.BigInteger(), nullable=False),
        sa.Column("request", sa.String(64), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("key_index", name="uq_api_keys_key_index"),
    )
    op.create_index("ix_api_keys_change", "api_keys", ["change"])
    op.create_index(
        "uq_api_keys_live_name",
        "api_keys",
        ["organization_id", "name"],
        unique=True,
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    op.create_index("ix_api_keys_request", "api_keys", ["request"])
    op.create_table(
        "key_changes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_key_changes"),
    )
    op.create_table(
        "key_totals",
        sa.Column("key_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.Column("change", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", name="pk_key_totals"),
    )
    op.create_index("ix_key_totals_change", "key_totals", ["change"])
    op.create_table(
        "reporters",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("sealed", sa.Text(), nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("revoked_at", UtcTime, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_reporters"),
    )
    op.execute("INSERT INTO key_changes (id, value) VALUES (1, 0)")


def _certificates() -> None:
    """Create orders to the ACME authority."""
    op.create_table(
        "certificate_keys",
        sa.Column("enclave_uid", sa.String(64), nullable=False),
        sa.Column("key_digest", sa.String(64), nullable=False),
        sa.Column("bound_at", UtcTime, nullable=False),
        sa.Column("refused_at", UtcTime, nullable=True),
        sa.PrimaryKeyConstraint("enclave_uid", name="pk_certificate_keys"),
    )
    op.create_table(
        "certificate_orders",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("enclave_uid", sa.String(64), nullable=False),
        sa.Column("enclave", sa.String(512), nullable=False),
        sa.Column("request_digest", sa.String(64), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("names", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("created_at", UtcTime, nullable=False),
        sa.Column("due_at", UtcTime, nullable=False),
        sa.Column("held_by", sa.String(36), nullable=True),
        sa.Column("held_until", UtcTime, nullable=True),
        sa.Column("order_url", sa.Text(), nullable=True),
        sa.Column("certificate", sa.Text(), nullable=True),
        sa.Column("not_after", UtcTime, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_certificate_orders"),
        sa.UniqueConstraint(
            "enclave_uid", "request_digest", name="uq_certificate_orders_enclave_uid_request_digest"
        ),
    )
    op.create_index(
        "ix_certificate_orders_enclave_uid_created_at",
        "certificate_orders",
        ["enclave_uid", "created_at"],
    )
    op.create_index("ix_certificate_orders_state_due_at", "certificate_orders", ["state", "due_at"])
    op.create_table(
        "certificate_submissions",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at", UtcTime, nullable=False),
        sa.Column("names", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_certificate_submissions"),
    )
    op.create_index("ix_certificate_submissions_at", "certificate_submissions", ["at"])
    op.create_table(
        "certificate_turns",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_certificate_turns"),
    )
    op.execute("INSERT INTO certificate_turns (id, value) VALUES (1, 0)")


def _replicas() -> None:
    """Create what the replicas of the API agree on."""
    leases = op.create_table(
        "leases",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("holder", sa.String(36), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )
    op.create_table(
        "replicas",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("seen_at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_replicas"),
    )
    sequences = op.create_table(
        "sequences",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_sequences"),
    )
    op.bulk_insert(
        sequences, [{"name": name, "value": 0} for name in ("api_keys", "usage", "events_deleted")]
    )
    op.bulk_insert(
        leases, [{"name": name, "holder": "", "until": 0} for name in ("utilization", "runtime")]
    )


def _usage_events() -> None:
    """Create events of usage, and their names."""
    op.create_table(
        "deliveries",
        sa.Column("reporter", sa.String(64), nullable=False),
        sa.Column("nonce", sa.String(200), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("reporter", "nonce", name="pk_deliveries"),
    )
    op.create_index("ix_deliveries_received_at", "deliveries", ["received_at"])
    op.create_table(
        "usage_events",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("event_key", sa.LargeBinary(16), nullable=False),
        sa.Column("occurred_at", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("reporter", sa.String(64), nullable=False),
        sa.Column("organization", sa.BigInteger(), nullable=True),
        sa.Column("key_id", sa.BigInteger(), nullable=True),
        sa.Column("key_index", sa.LargeBinary(32), nullable=True),
        sa.Column("operation", sa.BigInteger(), nullable=False),
        sa.Column("model", sa.BigInteger(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.Column("price_version", sa.BigInteger(), nullable=True),
        sa.Column("request_id", sa.String(200), nullable=True),
        sa.Column("attributes", sa.Text(), nullable=True),
        sa.Column("meters", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_usage_events"),
        sa.UniqueConstraint("event_key", name="uq_usage_events_event_key"),
    )
    op.create_table(
        "usage_names",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(253), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_usage_names"),
        sa.UniqueConstraint("kind", "name", name="uq_usage_names_kind_name"),
    )


def _usage_sums() -> None:
    """Create sums of usage, and prices."""
    op.create_table(
        "price_versions",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("effective_from", sa.BigInteger(), nullable=False),
        sa.Column("imported_at", UtcTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_price_versions"),
    )
    op.create_table(
        "prices",
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("service", sa.String(64), nullable=False),
        sa.Column("operation", sa.String(64), nullable=False),
        sa.Column("meter", sa.String(64), nullable=False),
        sa.Column("model", sa.String(253), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "version", "service", "operation", "meter", "model", name="pk_prices"
        ),
    )
    op.create_table(
        "usage_by_key",
        sa.Column("level", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("organization", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bucket", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("model", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "level", "organization", "bucket", "key_id", "model", name="pk_usage_by_key"
        ),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "usage_points",
        sa.Column("level", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("organization", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bucket", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("model", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("level", "organization", "bucket", "model", name="pk_usage_points"),
        sqlite_with_rowid=False,
    )


def _dead_letters() -> None:
    """Create events that could not be counted."""
    op.create_table(
        "usage_dead_letters",
        sa.Column("id", ID, autoincrement=True, nullable=False),
        sa.Column("letter_key", sa.LargeBinary(16), nullable=False),
        sa.Column("reporter", sa.String(64), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("key_index", sa.LargeBinary(32), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_usage_dead_letters"),
        sa.UniqueConstraint("letter_key", name="uq_usage_dead_letters_letter_key"),
    )
    op.create_index("ix_usage_dead_letters_received_at", "usage_dead_letters", ["received_at"])
    op.create_index("ix_usage_dead_letters_reporter", "usage_dead_letters", ["reporter"])
    op.create_table(
        "usage_dead_letters_lost",
        sa.Column("reporter", sa.String(64), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("reporter", name="pk_usage_dead_letters_lost"),
    )


def _runtime() -> None:
    """Create run time and utilization of enclaves."""
    op.create_table(
        "container_utilization",
        sa.Column("level", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("container", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bucket", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("observed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cpu_used", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cpu_given", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("memory_used", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("memory_given", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("gpu_observed", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("gpu_used", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("gpu_given", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("gpu_memory_used", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("gpu_memory_given", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("level", "container", "bucket", name="pk_container_utilization"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "runtime_enclaves",
        sa.Column("enclave", sa.String(64), nullable=False),
        sa.Column("organization", sa.String(64), nullable=False),
        sa.Column("container", sa.String(64), nullable=False),
        sa.Column("name", sa.String(253), nullable=False),
        sa.Column("cpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("metered_until", sa.BigInteger(), nullable=False),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("enclave", name="pk_runtime_enclaves"),
    )
    op.create_index("ix_runtime_enclaves_organization", "runtime_enclaves", ["organization"])
    op.create_table(
        "runtime_slices",
        sa.Column("id", sa.LargeBinary(16), nullable=False),
        sa.Column("enclave", sa.String(64), nullable=False),
        sa.Column("begin", sa.BigInteger(), nullable=False),
        sa.Column("microseconds", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_runtime_slices"),
    )
    op.create_index("ix_runtime_slices_enclave_begin", "runtime_slices", ["enclave", "begin"])
