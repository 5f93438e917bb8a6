package initdata

import (
	"maps"
	"os"
	"testing"
	"unicode/utf8"
)

const (
	head = "version = \"0.1.0\"\nalgorithm = \"sha256\"\n\n"
	file = "\"policy.rego\" = '''\nhonest\n'''\n"
)

// TestWhatOthersMayReadDifferentlyIsRefused has texts in which this library reads the honest file. The
// agent of a machine reads another one in the first three.
func TestWhatOthersMayReadDifferentlyIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"table in another case":     head + "[data]\n\"policy.rego\" = \"other\"\n\n[Data]\n" + file,
		"table in capitals":         head + "[DATA]\n" + file,
		"key in another case":       "VERSION = \"0.1.0\"\n" + head + "[data]\n" + file,
		"comment":                   head + "# more\n[data]\n" + file,
		"line break before":         "\n" + head + "[data]\n" + file,
		"no line break at the end":  head + "[data]\n" + file[:len(file)-1],
		"line breaks of Windows":    head + "[data]\n\"policy.rego\" = '''\r\nhonest\r\n'''\n",
		"another string":            head + "[data]\n\"policy.rego\" = \"honest\\n\"\n",
		"string with a joined line": head + "[data]\n\"policy.rego\" = \"\"\"\\\n  honest\n\"\"\"\n",
		"name without quotes":       head + "[data]\n" + "a = '''\nhonest\n'''\n",
		"dotted names":              head + "data.\"policy.rego\" = '''\nhonest\n'''\n",
		"other order":               head + "[data]\n" + file + "\"a\" = '''\nx'''\n",
		"byte order mark":           "\ufeff" + head + "[data]\n" + file,
	} {
		if read, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s: read as %v", name, read.Data)
		}
	}
	if read, err := Parse([]byte(head + "[data]\n" + file)); err != nil || read.Data["policy.rego"] != "honest\n" {
		t.Errorf("as the operator writes it: %v %v", read, err)
	}
}

// TestTextsOfTheOperatorAreRead has files of every form that the operator writes: a unit test of its writer
// compares the text.
func TestTextsOfTheOperatorAreRead(t *testing.T) {
	text, err := os.ReadFile("../../../../../tests/data/measurement/initdata-forms.toml")
	if err != nil {
		t.Fatal(err)
	}
	read, err := Parse(text)
	if err != nil || len(read.Data) != 8 {
		t.Errorf("%d files: %v", len(read.Data), err)
	}
}

// FuzzWrittenIsRead writes any file by any name as the operator does, and reads it back.
func FuzzWrittenIsRead(f *testing.F) {
	for _, each := range []string{"", "\n", "'", "''", "'''", "a'", "\r\n", "\t\x7f", `"""`, `\`, "\x00", "x\n'''\ny", "\u2028\u0085\ufeff"} {
		f.Add(each, each)
	}
	f.Fuzz(func(t *testing.T, name, content string) {
		if !utf8.ValidString(name) || !utf8.ValidString(content) {
			return
		}
		made := Document{Version: version, Algorithm: "sha256", Data: map[string]string{name: content, "policy.rego": "x"}}
		read, err := Parse(made.text())
		if err != nil || !maps.Equal(read.Data, made.Data) {
			t.Errorf("%q: %v", made.text(), err)
		}
	})
}
