package main

import (
	"os"
	"testing"
)

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	return content
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func writeFile(path, content string) error { return os.WriteFile(path, []byte(content), 0o644) }

func removeFile(path string) error { return os.Remove(path) }
