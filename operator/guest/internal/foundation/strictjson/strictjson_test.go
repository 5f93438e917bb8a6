package strictjson

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

type sample struct {
	Name  string         `json:"name"`
	Inner map[string]int `json:"inner"`
	List  []sample       `json:"list"`
}

func TestDecode(t *testing.T) {
	for text, problem := range map[string]string{
		`{"name":"a","inner":{"x":1},"list":[{"name":"b"}]}`: "",
		`{"name":"a","name":"b"}`:                            `name: given twice`,
		`{"name":"a","Name":"b"}`:                            `Name: given twice`,
		`{"list":[{"inner":{"x":1,"x":2}}]}`:                 `list[0].inner.x: given twice`,
		`{"other":1}`:                                        `unknown field "other"`,
		`{"name":1}`:                                         "cannot unmarshal",
		`{"name":"a"} {}`:                                    "text follows",
		`{"name":"a"`:                                        "not JSON",
		``:                                                   "not JSON",
		strings.Repeat(`{"list":[`, 40):                      "nested deeper",
		strings.Repeat(" ", MaxDocument+1):                   "larger than allowed",
	} {
		_, err := Decode[sample]([]byte(text))
		if problem == "" && err != nil || problem != "" && (err == nil || !strings.Contains(err.Error(), problem)) {
			t.Errorf("%.60s: got %v, want %q", text, err, problem)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"a","inner":{"x":1},"list":[{"name":"b"}]}`))
	f.Add([]byte(`{"name":"a","NAME":"b"}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		value, err := Decode[sample](data)
		if err != nil {
			return
		}
		again, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		second, err := Decode[sample](again)
		if err != nil {
			t.Fatalf("a decoded document cannot be decoded again: %v", err)
		}
		if third, _ := json.Marshal(second); !bytes.Equal(again, third) {
			t.Errorf("%s became %s", again, third)
		}
	})
}
