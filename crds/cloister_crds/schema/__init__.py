"""From pydantic models to structural CRD YAML."""
