package verify

import (
	"fmt"
	"strings"
)

// levelRemedies are what to do about each state of a level that Intel names, but UpToDate. The library
// accepts no other one and continues with none, so that an option to accept some would leave unchecked what
// it checks afterwards.
var levelRemedies = map[string]string{
	"OutOfDate":                         "Intel knows weaknesses of that level: have the node's firmware, microcode and TDX module updated",
	"OutOfDateConfigurationNeeded":      "Intel knows weaknesses of that level: have the node's firmware, microcode and TDX module updated, and its BIOS set as Intel's advisories say",
	"ConfigurationNeeded":               "the level is new enough, and the node's settings may be weak: have its BIOS set as Intel's advisories say",
	"SWHardeningNeeded":                 "the level is new enough if the software inside is hardened as Intel's advisories say, which this program cannot see: use a processor whose level is UpToDate",
	"ConfigurationAndSWHardeningNeeded": "the level is new enough if the node's BIOS is set and the software inside is hardened as Intel's advisories say, which this program cannot see: use a processor whose level is UpToDate",
	"Revoked":                           "Intel revoked that level: its keys may be known to others, so trust nothing that this enclave reports",
}

const (
	// unknownLevel is what to do about a level that Intel's list does not have.
	unknownLevel = "Intel's list has no level that is as old: have the node's firmware, microcode and TDX module updated"
	// missingAnswers is what to do about answers of Intel's that are missing or not valid.
	missingAnswers = "allow requests to api.trustedservices.intel.com and certificates.trustedservices.intel.com, or ask the enclave's operator for collateral in the document"
)

// levelRemedy returns what to do about an error of the library, which has the state only in its text.
func levelRemedy(problem string) string {
	for state, remedy := range levelRemedies {
		if strings.Contains(problem, fmt.Sprintf("found %q", state)) {
			return remedy
		}
	}
	for _, text := range []string{"no matching TCB level found", "unable to find latest status of TCB", "could not find a TDX Module Identity"} {
		if strings.Contains(problem, text) {
			return unknownLevel
		}
	}
	return missingAnswers
}
