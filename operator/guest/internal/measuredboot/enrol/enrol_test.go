package enrol_test

import (
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"cloister.dev/guest/internal/measuredboot"
	"cloister.dev/guest/internal/measuredboot/enrol"
	"cloister.dev/guest/internal/measuredboot/testtpm"
)

func TestRefusesTPMs(t *testing.T) {
	one, other := testtpm.Start(t), testtpm.Start(t)
	machine, err := measuredboot.Open(one.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	for name, each := range map[string]struct {
		authority enrol.Authority
		at        time.Time
		reason    string
	}{
		"of another authority": {other.Authority, time.Now(), "certificate of the endorsement key"},
		"of no validity yet":   {one.Authority, time.Now().AddDate(-1, 0, 0), "certificate of the endorsement key"},
		"enrolled before":      {one.Authority, time.Now(), "cannot be defined"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := each.authority.Enrol(machine, each.at); err == nil || !strings.Contains(err.Error(), each.reason) {
				t.Errorf("%v instead of %q", err, each.reason)
			}
		})
	}
}

func TestReadsAuthorities(t *testing.T) {
	tpm := testtpm.Start(t)
	block, _ := pem.Decode(tpm.Authorities)
	certificate := pem.EncodeToMemory(block)
	for reason, files := range map[string][3][]byte{
		"the root is no certificate":          {nil, certificate, nil},
		"the issuer is no certificate":        {certificate, nil, nil},
		"the issuer's key is no key in PEM":   {certificate, certificate, nil},
		"the issuer's key is no RSA key":      {certificate, certificate, certificate},
		"issuer: x509: malformed certificate": {certificate, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), nil},
	} {
		if _, err := enrol.ReadAuthority(files[0], files[1], files[2]); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%v instead of %q", err, reason)
		}
	}
}
