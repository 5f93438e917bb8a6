// The Gateway API's CRDs, for tests: `go mod download` brings the module whose files they are.
module cloister.dev/tests/gateway-api

go 1.26.0

toolchain go1.26.8

require sigs.k8s.io/gateway-api v1.6.3
