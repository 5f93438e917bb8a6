package verify

import (
	"testing"

	"github.com/google/go-sev-guest/kds"

	"cloister.dev/guest/internal/evidence/attestdoc"
	"cloister.dev/guest/internal/evidence/teetest"
)

// TestAnOldKeySignsNoNewFirmware has the key of firmware that is known to be weak: anyone who knows it signs
// reports that name the newest.
func TestAnOldKeySignsNoNewFirmware(t *testing.T) {
	made := newScene(t)
	newest, err := teetest.NewSNPOf(now.AddDate(-1, 0, 0), kds.TCBParts{BlSpl: 9, SnpSpl: 20, UcodeSpl: 200})
	if err != nil {
		t.Fatal(err)
	}
	made.want.MinimumTCB = kds.TCBParts{SnpSpl: 20}
	honest := made.snp
	made.snp = newest
	if err := check(made.made(t), made.want); err != nil {
		t.Fatal(err)
	}
	made.collateral = func(all map[string][]byte) { all[attestdoc.AMDVCEK] = honest.VCEK() }
	refused(t, check(made.made(t), made.want), ClassSignature)
}

// TestKeysOfProviders has reports that a provider's key signs in place of the processor's.
func TestKeysOfProviders(t *testing.T) {
	for name, test := range map[string]struct {
		class Class
		spoil func(s *scene, all map[string][]byte)
	}{
		"honest":          {0, func(*scene, map[string][]byte) {}},
		"no certificate":  {ClassSignature, func(_ *scene, all map[string][]byte) { delete(all, attestdoc.AMDVLEK) }},
		"processor's key": {ClassSignature, func(s *scene, all map[string][]byte) { all[attestdoc.AMDVLEK] = s.snp.VCEK() }},
		"no list":         {ClassFirmware, func(_ *scene, all map[string][]byte) { delete(all, attestdoc.AMDCRL) }},
		"old list": {ClassFirmware, func(s *scene, all map[string][]byte) {
			all[attestdoc.AMDCRL], _ = s.snp.RevocationList(now.AddDate(0, -2, 0), false)
		}},
		"providers revoked": {ClassFirmware, func(s *scene, all map[string][]byte) { all[attestdoc.AMDCRL], _ = s.snp.ProviderRevoked(now) }},
		"list of somebody": {ClassFirmware, func(s *scene, all map[string][]byte) {
			answers, _ := s.tdx.Collateral(s.answers)
			all[attestdoc.AMDCRL] = answers[attestdoc.IntelRootCRL]
		}},
		"processors revoked": {ClassFirmware, func(s *scene, all map[string][]byte) { all[attestdoc.AMDCRL], _ = s.snp.RevocationList(now, true) }},
		"key of other firmware": {ClassSignature, func(s *scene, all map[string][]byte) {
			other, err := teetest.NewSNPOf(now.AddDate(-1, 0, 0), kds.TCBParts{SnpSpl: 1})
			if err == nil {
				all[attestdoc.AMDVLEK] = other.VLEK()
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			made := newScene(t)
			made.report.Provider = true
			made.collateral = func(all map[string][]byte) {
				delete(all, attestdoc.AMDVCEK)
				all[attestdoc.AMDVLEK] = made.snp.VLEK()
				test.spoil(made, all)
			}
			err := check(made.made(t), made.want)
			if test.class == 0 && err == nil {
				return
			}
			refused(t, err, test.class)
		})
	}
}

// TestAMachineWasLaunchedByFirmwareThatIsNewEnough has a machine that old firmware launched, and may have
// opened, before the host replaced that firmware by the newest while the machine ran.
func TestAMachineWasLaunchedByFirmwareThatIsNewEnough(t *testing.T) {
	newest, err := teetest.NewSNPOf(now.AddDate(-1, 0, 0), kds.TCBParts{BlSpl: 9, SnpSpl: 20, UcodeSpl: 200})
	if err != nil {
		t.Fatal(err)
	}
	made := newScene(t)
	made.snp, made.want.MinimumTCB = newest, kds.TCBParts{BlSpl: 9}
	made.report.Change = func(raw []byte) { raw[0x1F0] = 8 }
	refused(t, check(made.made(t), made.want), ClassFirmware)
	made.want.MinimumTCB = kds.TCBParts{BlSpl: 8}
	if err := check(made.made(t), made.want); err != nil {
		t.Error(err)
	}
}
