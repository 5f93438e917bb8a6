package bootverify

// CommandDigest is the digest of the command line that a verifier expects.
func CommandDigest(want Expectation) []byte { return want.Platform.command(want.Measurement) }
