"""The operator: watches the custom resources and brings the cluster to the desired state."""
