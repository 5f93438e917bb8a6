"""The real controllers of Flux and Argo CD, and the pages of docs/gitops that tests follow."""
