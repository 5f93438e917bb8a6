"""The generated parts of the Helm chart, and the single manifest for those without Helm."""
