package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// waiting returns an agent whose models stage depends on a status file.
func waiting(t *testing.T) (*agent, string) {
	t.Helper()
	status := filepath.Join(t.TempDir(), "status.json")
	spec := valid()
	spec.Stages[stageModels] = Rule{Models: status}
	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}
	known := state{Boot: *newBoot(), Containers: newRecords(spec.Containers)}
	return &agent{spec: spec, state: known, changed: make(chan struct{}, 1)}, status
}

func TestTheModelsStage(t *testing.T) {
	const times = `"startedAt":"2026-01-02T03:04:05Z","endedAt":null`
	for name, step := range map[string]struct{ content, status, detail, failure string }{
		"not begun":   {"", statusPending, "", ""},
		"half":        {`{"state":`, statusPending, "", ""},
		"running":     {`{"state":"running",TIMES,"reason":"","message":"","models":[]}`, statusPending, "", ""},
		"verified":    {`{"state":"ok",TIMES,"reason":"","message":"","models":[{"name":"a","rootHash":"0","files":1,"bytes":2,"seconds":0}]}`, statusOK, "Verified against their root hashes: 1.", ""},
		"wrong":       {`{"state":"failed",TIMES,"reason":"ModelInvalid","message":"model a: it differs","models":[]}`, statusFailed, "Stage models: model a: it differs", "ModelInvalid"},
		"not there":   {`{"state":"failed",TIMES,"reason":"ModelNotFound","message":"model a: none","models":[]}`, statusFailed, "Stage models: model a: none", "ModelNotFound"},
		"other cause": {`{"state":"failed",TIMES,"reason":"","message":"no room","models":[]}`, statusFailed, "Stage models: no room", reasonBoot},
	} {
		t.Run(name, func(t *testing.T) {
			a, file := waiting(t)
			if step.content != "" {
				content := strings.ReplaceAll(step.content, "TIMES", times)
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			a.advanceBoot(time.Now())
			if got := a.state.Boot.stage(stageModels, time.Now()); got.Status != step.status || got.Detail != step.detail {
				t.Errorf("got %s: %s", got.Status, got.Detail)
			}
			failed := a.state.Boot.Failure
			if (failed != nil) != (step.failure != "") || (failed != nil && (failed.Reason != step.failure || failed.Message != step.detail)) {
				t.Errorf("the boot: %+v", failed)
			}
		})
	}
}
