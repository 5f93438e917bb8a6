package verify

import (
	"errors"
	"fmt"

	"cloister.dev/guest/internal/attestdoc"
	"cloister.dev/guest/internal/bootverify"
	"cloister.dev/guest/internal/measuredboot"
)

// MeasuredBoot is what a client trusts of machines with a measured boot.
type MeasuredBoot struct {
	// Platform is firmware, kernel and initial file system.
	Platform bootverify.Platform
	// InsecureAuthorities certify the keys of TPMs. Whoever owns a virtual TPM chooses what it quotes.
	InsecureAuthorities bootverify.Authorities
	// Since are the counters of an earlier document of the same boot; nil means that any boot will do.
	Since *bootverify.Counters
}

// bootSteps are class and remedy of each step at which evidence of a measured boot is refused.
var bootSteps = map[measuredboot.Step]struct {
	class  Class
	remedy string
}{
	measuredboot.StepEvidence:    {ClassDocument, "use the cloister-verify of the release that runs the enclave"},
	measuredboot.StepCertificate: {ClassSignature, "give the root of whoever certified the machine's TPM, if you trust it"},
	measuredboot.StepSignature:   {ClassSignature, "trust nothing that this enclave says: the quote is not that of the certified TPM, or was changed"},
	measuredboot.StepReportData:  {ClassFreshness, "request it again; if that repeats, an old quote is replayed with another document"},
	measuredboot.StepRegisters:   {ClassSignature, "trust nothing that this enclave says: its registers are not those that the TPM quotes"},
	measuredboot.StepEventLog:    {ClassLaunch, "trust nothing that this enclave says: its event log is not that of this boot"},
	measuredboot.StepFirmware:    {ClassLaunch, "compare the firmware and the devices of the machine with those of the platform file"},
	measuredboot.StepKernel:      {ClassLaunch, "compare the kernel of the machine with that of the platform file"},
	measuredboot.StepInitrd:      {ClassLaunch, "compare the initial file system of the machine with that of the platform file"},
	measuredboot.StepCommandLine: {ClassMeasurement, "the machine was started for another enclave, or with other parameters; compute the measurement again with `cloister config measure`"},
	measuredboot.StepSameBoot:    {ClassFreshness, "verify the enclave again from the beginning"},
}

// checkMeasuredBoot never returns nil: evidence that is right is a class of its own.
func checkMeasuredBoot(read attestdoc.Parts, want Expected) error {
	const step, problem = "evidence", "measured boot, not confidential: whoever runs the machine owns the TPM that measured it"
	const remedy = "send nothing that whoever runs the cluster must not read"
	if want.MeasuredBoot == nil {
		return refuse(ClassNotConfidential, step, problem+"; nothing else was checked", remedy)
	}
	enclave, err := checkMeasurement(string(read.Measurement), want)
	if err != nil {
		return err
	}
	if !enclave.Host.MeasuredBoot {
		return refuse(ClassMeasurement, "measurement", "it is not that of an enclave with a measured boot", "use a Host with measuredBoot: true, or one with a TEE")
	}
	want.pass("measurement", fmt.Sprintf("sha256:%x, without debug, by a measured boot", want.Measurement))
	found, err := bootverify.Verify(read.Report, bootverify.Expectation{
		ReportData: read.ReportData, Measurement: want.Measurement, Platform: want.MeasuredBoot.Platform,
		Authorities: want.MeasuredBoot.InsecureAuthorities, Now: want.Now, Since: want.MeasuredBoot.Since,
	})
	var refusal *measuredboot.Refusal
	if errors.As(err, &refusal) {
		known := bootSteps[refusal.Step]
		return refuse(known.class, string(refusal.Step), refusal.Problem, known.remedy)
	}
	if err != nil {
		return malformed(err)
	}
	want.pass("measured boot", "certificate and signature of the quote, its report data, firmware, kernel, initial file system and command line")
	want.pass("boot", fmt.Sprintf("%d,%d,%d", found.Resets, found.Restarts, found.Clock))
	if read.TLSSPKI != want.Key {
		return refuse(ClassKey, "TLS key", "the evidence binds another key than that of this connection", "send nothing: somebody else ends the connection")
	}
	want.pass("TLS key", fmt.Sprintf("%x", want.Key))
	return refuse(ClassMeasuredBoot, step, problem+"; the quote is over the expected firmware, kernel, command line, measurement, key and nonce", remedy)
}
