package bootverify_test

import (
	"strings"
	"testing"

	"cloister.dev/guest/internal/bootverify"
)

func TestPlatformFiles(t *testing.T) {
	for name, one := range map[string]struct {
		problem string
		change  func(fields map[string]any)
	}{
		"other format":          {"format", func(fields map[string]any) { fields["format"] = "v9" }},
		"nothing is measured":   {"command_line", func(fields map[string]any) { fields["command_line"] = "quiet" }},
		"measured in a comment": {"command_line", func(fields map[string]any) { fields["command_line"] = "note={measurement}" }},
		"measured twice": {"command_line", func(fields map[string]any) {
			fields["command_line"] = "cloister.measurement=x cloister.measurement={measurement}"
		}},
		"kernel is no digest":     {"kernel", func(fields map[string]any) { fields["kernel"] = "AB" }},
		"initrd is no digest":     {"initrd", func(fields map[string]any) { fields["initrd"] = "" }},
		"a register is missing":   {"registers", func(fields map[string]any) { delete(fields["registers"].(map[string]any), "0") }},
		"a register is decided":   {"registers", func(fields map[string]any) { fields["registers"].(map[string]any)["9"] = strings.Repeat("0", 64) }},
		"a register is no digest": {"registers.7", func(fields map[string]any) { fields["registers"].(map[string]any)["7"] = "0" }},
		"a register too many":     {"registers", func(fields map[string]any) { fields["registers"].(map[string]any)["23"] = strings.Repeat("0", 64) }},
		"unknown field":           {"extra", func(fields map[string]any) { fields["extra"] = true }},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bootverify.ReadPlatform(changed(t, one.change))
			if err == nil || !strings.Contains(err.Error(), one.problem) {
				t.Errorf("%v does not name %s", err, one.problem)
			}
		})
	}
}
