package shell

import (
	"strings"
	"testing"

	"cloister.dev/guest/internal/foundation/strictjson"
)

func TestCheck(t *testing.T) {
	for name, request := range map[string]Request{
		"login shell": {Kind: RequestStart, Start: &Start{}},
		"command":     {Kind: RequestStart, Start: &Start{Command: "id -u", Environment: []string{"LANG=C", "EMPTY="}}},
		"terminal":    {Kind: RequestStart, Start: &Start{Terminal: &Terminal{Name: "xterm-256color", Size: Size{80, 24}}}},
		"files":       {Kind: RequestStart, Start: &Start{Files: true}},
		"signal":      {Kind: RequestSignal, Signal: "INT"},
		"size":        {Kind: RequestSize, Size: &Size{Columns: 132}},
	} {
		if err := request.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := make([]string, MaxEnvironment+1)
	for index := range many {
		many[index] = "A=1"
	}
	for name, request := range map[string]Request{
		"nothing":            {},
		"another":            {Kind: "attach", Start: &Start{}},
		"start without":      {Kind: RequestStart},
		"two at once":        {Kind: RequestStart, Start: &Start{}, Signal: "INT"},
		"zero byte":          {Kind: RequestStart, Start: &Start{Command: "a\x00"}},
		"long command":       {Kind: RequestStart, Start: &Start{Command: strings.Repeat("a", maxCommand+1)}},
		"files with command": {Kind: RequestStart, Start: &Start{Files: true, Command: "a"}},
		"files on terminal":  {Kind: RequestStart, Start: &Start{Files: true, Terminal: &Terminal{}}},
		"variable":           {Kind: RequestStart, Start: &Start{Environment: []string{"A B=1"}}},
		"no variable":        {Kind: RequestStart, Start: &Start{Environment: []string{"=1"}}},
		"many variables":     {Kind: RequestStart, Start: &Start{Environment: many}},
		"terminal name":      {Kind: RequestStart, Start: &Start{Terminal: &Terminal{Name: "a b"}}},
		"terminal size":      {Kind: RequestStart, Start: &Start{Terminal: &Terminal{Size: Size{Rows: 1 << 20}}}},
		"no signal":          {Kind: RequestSignal, Signal: "HELLO"},
		"size":               {Kind: RequestSize, Size: &Size{Columns: 1 << 15}},
	} {
		if request.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzRequestAndAnswer(f *testing.F) {
	f.Add([]byte(`{"ask":"start","start":{"command":"id","terminal":{"name":"vt100","size":{"columns":1,"rows":2}},"environment":["A=b"]}}`))
	f.Add([]byte(`{"ask":"signal","signal":"TERM"}`))
	f.Add([]byte(`{"answer":"ended","code":3}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if request, err := strictjson.Decode[Request](data); err == nil && request.Check() == nil && request.Kind == "" {
			t.Errorf("%+v", request)
		}
		_, _ = strictjson.Decode[Response](data)
	})
}
