package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"cloister.dev/guest/internal/verify"
)

func TestOptionsOfAMeasuredBoot(t *testing.T) {
	data := filepath.Join("..", "..", "internal", "measuredboot", "testdata")
	platform, root := filepath.Join(data, "platform.json"), filepath.Join(data, "authorities.pem")
	for name, test := range map[string]struct {
		words  []string
		reason string
	}{
		"no root":            {[]string{"--measured-boot", platform}, "both are needed"},
		"no platform":        {[]string{"--insecure-tpm-root", root}, "both are needed"},
		"boot of nothing":    {[]string{"--same-boot", "1,0,5"}, "belongs to --measured-boot"},
		"two numbers":        {[]string{"--same-boot", "1,0", "--measured-boot", platform, "--insecure-tpm-root", root}, "not three numbers"},
		"four numbers":       {[]string{"--same-boot", "1,0,5,6", "--measured-boot", platform, "--insecure-tpm-root", root}, "not three numbers"},
		"no such platform":   {[]string{"--measured-boot", "/nowhere", "--insecure-tpm-root", root}, "--measured-boot"},
		"another file":       {[]string{"--measured-boot", root, "--insecure-tpm-root", root}, "docs/measured-boot.md"},
		"no certificate":     {[]string{"--measured-boot", platform, "--insecure-tpm-root", platform}, "no certificate that signs itself"},
		"only what it signs": {[]string{"--measured-boot", platform, "--insecure-tpm-root", file(t, intermediateOf(t, root))}, "no certificate that signs itself"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, messages bytes.Buffer
			code := run(context.Background(), append([]string{"--measurement", digest, "127.0.0.1:1"}, test.words...), &out, &messages)
			if code != int(verify.ClassUsage) || !strings.Contains(messages.String(), test.reason) {
				t.Errorf("code %d: %s", code, &messages)
			}
		})
	}
}

// intermediateOf returns the second certificate of a file.
func intermediateOf(t *testing.T, path string) string {
	t.Helper()
	text, err := readFile("root", path)
	if err != nil {
		t.Fatal(err)
	}
	const begin = "-----BEGIN CERTIFICATE-----"
	return begin + strings.Split(string(text), begin)[2]
}
