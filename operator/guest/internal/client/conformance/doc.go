// Package conformance has the tests that make and judge the vectors of tests/data/attestation: one
// attestation document each, damaged in one place, and the verdict that every verifier must reach.
// CLOISTER_WRITE_VECTORS=1 writes them; without it a difference fails the test.
package conformance
