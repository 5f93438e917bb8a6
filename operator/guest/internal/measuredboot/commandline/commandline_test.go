package commandline_test

import (
	"testing"

	"cloister.dev/guest/internal/measuredboot/commandline"
)

func TestMeasurement(t *testing.T) {
	for line, want := range map[string]string{
		"":      "",
		"quiet": "",
		"quiet cloister.measurement=sha256:aa initrd=x":                "sha256:aa",
		"cloister.measurement=sha256:aa cloister.measurement=sha256:b": "",
		"xcloister.measurement=sha256:aa":                              "",
	} {
		if got := commandline.Measurement(line); got != want {
			t.Errorf("%q instead of %q for %q", got, want, line)
		}
	}
}
