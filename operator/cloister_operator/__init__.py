"""The operator: watches the custom resources and makes the cluster look like them."""
