package verify

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-tdx-guest/pcs"

	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/evidence/teetest"
)

// TestEachStateOfALevelIsRefusedWithWhatToDo lets Intel say each of its states of the processor's level, and
// of that of the quoting enclave.
func TestEachStateOfALevelIsRefusedWithWhatToDo(t *testing.T) {
	states := []pcs.TcbComponentStatus{
		pcs.TcbComponentStatusOutOfDate, pcs.TcbComponentStatusOutOfDateConfigurationNeeded, pcs.TcbComponentStatusConfigurationNeeded,
		pcs.TcbComponentStatusSwHardeningNeeded, pcs.TcbComponentStatusConfigurationAndSWHardeningNeeded, pcs.TcbComponentStatusRevoked,
	}
	if len(states) != len(levelRemedies) {
		t.Errorf("%d states, %d remedies", len(states), len(levelRemedies))
	}
	for _, state := range states {
		for name, answers := range map[string]teetest.PCS{"processor": {Status: string(state)}, "quoting enclave": {QEStatus: string(state)}} {
			remedy := remedyOf(t, answers, func(map[string][]byte) {})
			if want := levelRemedies[string(state)]; want == "" || remedy != want {
				t.Errorf("%s: %s: %q, want %q", name, state, remedy, want)
			}
		}
	}
}

// remedyOf returns what to do about an enclave with TDX for which Intel answers so.
func remedyOf(t *testing.T, answers teetest.PCS, change func(map[string][]byte)) string {
	t.Helper()
	made := newScene(t)
	made.isTDX, made.collateral = true, change
	answers.At = made.answers.At
	made.answers = answers
	err := check(made.made(t), made.want)
	refused(t, err, ClassFirmware)
	var failure *Failure
	errors.As(err, &failure)
	return failure.Remedy
}

func TestOtherTroubleWithLevelsHasItsRemedy(t *testing.T) {
	without := func(all map[string][]byte) { delete(all, attestdoc.IntelTCBInfo) }
	if remedy := remedyOf(t, teetest.PCS{}, without); remedy != missingAnswers {
		t.Errorf("missing: %q", remedy)
	}
	if remedy := levelRemedy("TDX TCB info reported by Intel PCS failed TCB status check: no matching TCB level found"); remedy != unknownLevel {
		t.Errorf("older than all: %q", remedy)
	}
}

// TestProcessorsThatAreNotReadAreNamed are evidence that is honest, as far as this program can tell.
func TestProcessorsThatAreNotReadAreNamed(t *testing.T) {
	for name, each := range map[string]struct {
		family, model byte
		want          string
	}{
		"Turin":       {0x1A, 0x02, "family 0x1a, model 0x2 (Turin)"},
		"Turin Dense": {0x1A, 0x11, "family 0x1a, model 0x11 (unknown)"},
		"Bergamo":     {0x19, 0xA0, "family 0x19, model 0xa0 (unknown)"},
		"version 5":   {0, 0, "quotes of version 5"},
	} {
		made := newScene(t)
		made.isTDX, made.quote.Version5 = each.family == 0, true
		made.report.Change = func(raw []byte) { raw[0x188], raw[0x189] = each.family, each.model }
		err := check(made.made(t), made.want)
		refused(t, err, ClassUnsupported)
		if !strings.Contains(err.Error(), each.want) || !strings.Contains(err.Error(), "docs/verify.md") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
