// The Gateway API's last CRDs without TLSRoute v1, for tests.
module cloister.dev/tests/gateway-api/v1-4

go 1.26.0

toolchain go1.26.8

require sigs.k8s.io/gateway-api v1.4.1
