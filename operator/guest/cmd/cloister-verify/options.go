package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/google/go-sev-guest/kds"

	"cloister.dev/guest/internal/client/enclaveconn"
)

const usage = `cloister-verify HOST[:PORT] --repo OWNER/NAME --tag TAG --platform HEX[,HEX…] [options]
cloister-verify HOST[:PORT] --measurement sha256:… --platform HEX[,HEX…] [options]
cloister-verify --from-bundle FILE --platform HEX[,HEX…] [options]
cloister-verify proxy HOST[:PORT] --listen 127.0.0.1:PORT [the same options]`

// errShown is an error whose message the user has seen.
var errShown = errors.New("shown")

var (
	imagePattern = regexp.MustCompile(`^\S+@sha256:[0-9a-f]{64}$`)
	namesPattern = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(,[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)*$`)
)

// options are the parsed command line.
type options struct {
	proxy  bool
	target enclaveconn.Target

	measurement             string
	repo, tag, commit, file string
	source                  string
	hostProfile, documents  string
	settings                string
	guestImage, shimImage   string
	imagesLock              string
	gpus                    int
	platform, minimumTCB    string

	strict, json, verbose  bool
	bundle, fromBundle, at string
	nonce, tlsKey          string
	developmentRoot        string
	skipRevocation         bool

	listen     string
	anywhere   bool
	names      string
	recheck    time.Duration
	digest     [sha256.Size]byte
	launch     [][]byte
	leastTCB   kds.TCBParts
	verifiedAt time.Time
	ownNonce   []byte
	ownKey     []byte
}

func (o *options) flags(messages io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet("cloister-verify", flag.ContinueOnError)
	flags.SetOutput(messages)
	flags.Usage = func() { fmt.Fprintln(messages, usage); flags.PrintDefaults() }
	flags.StringVar(&o.target.Service, "service", "cloister", "service name of the installation")
	flags.StringVar(&o.target.Connect, "connect", "", "connect to this `ADDRESS:PORT` instead of the one that HOST has")
	flags.StringVar(&o.measurement, "measurement", "", "`digest` of the measurement document, from cloister config measure, instead of --repo")
	flags.StringVar(&o.repo, "repo", "", "repository of the configuration file, `OWNER/NAME`")
	flags.StringVar(&o.tag, "tag", "", "tag of its release")
	flags.StringVar(&o.commit, "commit", "", "commit that the tag must point to")
	flags.StringVar(&o.source, "source", "", "`file` with the locations of repositories, as sources in the settings; default GitHub")
	flags.StringVar(&o.file, "file", "", "configuration `file` that you have, instead of --repo")
	flags.StringVar(&o.hostProfile, "host-profile", "", "manifest of the Host, a YAML `file`")
	flags.StringVar(&o.documents, "documents", "", "the enclave's documents, a `file` from cloister documents")
	flags.StringVar(&o.settings, "settings", "", "published settings, a YAML `file`: make the documents by running cloister documents")
	flags.StringVar(&o.guestImage, "guest-image", "", "image of the guest with its digest, `NAME@sha256:…`")
	flags.StringVar(&o.shimImage, "shim-image", "", "image of the shim with its digest, `NAME@sha256:…`")
	flags.StringVar(&o.imagesLock, "images-lock", "", "images.lock of the release that you trust, a `file`, instead of both images")
	flags.IntVar(&o.gpus, "gpus", -1, "`number` of GPUs of the request; default the file's")
	flags.StringVar(&o.platform, "platform", "", "trusted launch measurements, in `hexadecimal digits`, separated by commas")
	flags.StringVar(&o.minimumTCB, "minimum-tcb", "", "least firmware of an SNP processor: `BOOTLOADER,TEE,SNP,MICROCODE`")
	flags.BoolVar(&o.strict, "strict", false, "refuse what rests on the operator's word, or on that of a bundle's author")
	flags.BoolVar(&o.json, "json", false, "write the verdict as JSON")
	flags.BoolVar(&o.verbose, "verbose", false, "write each step and what it compared")
	flags.StringVar(&o.bundle, "bundle", "", "write everything that this verification needs to a `file`")
	flags.StringVar(&o.fromBundle, "from-bundle", "", "verify a bundle, a `file`, without network")
	flags.StringVar(&o.at, "at", "", "`time` (RFC 3339, or now) at which a bundle is verified; default the bundle's")
	flags.StringVar(&o.nonce, "nonce", "", "nonce that you chose, 64 `hexadecimal digits`: a bundle must be for it; with --bundle it is sent")
	flags.StringVar(&o.tlsKey, "tls-key", "", "SHA-256 of the SubjectPublicKeyInfo that you saw at the host, 64 `hexadecimal digits`: a bundle must bind it")
	flags.StringVar(&o.developmentRoot, "insecure-development-root", "", "trust the root certificates in this PEM `file` in place of the vendors'")
	flags.BoolVar(&o.skipRevocation, "insecure-skip-revocation", false, "do not check the vendors' revocation lists")
	flags.StringVar(&o.listen, "listen", "", "proxy: `ADDRESS:PORT` of the loopback to serve on")
	flags.BoolVar(&o.anywhere, "listen-anywhere", false, "proxy: let --listen be another address, which anyone who reaches it can use")
	flags.StringVar(&o.names, "listen-names", "", "proxy: host `names` in addition to localhost under which clients call it, separated by commas")
	flags.DurationVar(&o.recheck, "recheck", time.Minute, "proxy: verify again at least this often")
	return flags
}

// parseOptions reads the command line; options may be before and after HOST.
func parseOptions(arguments []string, messages io.Writer) (options, error) {
	var chosen options
	if len(arguments) > 0 && arguments[0] == "proxy" {
		chosen.proxy, arguments = true, arguments[1:]
	}
	flags := chosen.flags(messages)
	var words []string
	for {
		if err := flags.Parse(arguments); err != nil {
			return chosen, errShown
		}
		if flags.NArg() == 0 {
			break
		}
		words, arguments = append(words, flags.Arg(0)), flags.Args()[1:]
	}
	if len(words) > 1 || (len(words) == 0) != (chosen.fromBundle != "") {
		return chosen, errors.New(usage)
	}
	if len(words) == 1 {
		chosen.target.Host = words[0]
	}
	for _, check := range []func() error{chosen.checkMeasurement, chosen.checkImages, chosen.checkPlatform, chosen.checkBundle, chosen.checkProxy} {
		if err := check(); err != nil {
			return chosen, err
		}
	}
	return chosen, nil
}

// checkMeasurement checks what the enclave is compared with.
func (o *options) checkMeasurement() error {
	ways := 0
	for _, each := range []string{o.measurement, o.repo, o.file} {
		if each != "" {
			ways++
		}
	}
	switch {
	case ways > 1:
		return errors.New("--measurement, --repo, --file: name one of them, which defines what the enclave must be")
	case ways == 0 && o.fromBundle == "":
		return errors.New("--repo: missing; name the repository and --tag of what must run, or --file, or --measurement")
	case o.repo != "" && o.tag == "":
		return errors.New("--tag: missing; name the release that you trust: the newest one is whatever the repository's owner published last, so it is not guessed")
	case o.repo == "" && (o.tag != "" || o.commit != "" || o.source != ""):
		return errors.New("--tag, --commit, --source: they belong to --repo")
	case o.repo != "" && o.fromBundle != "":
		return errors.New("--repo: a bundle is verified without network; name a --file that you have, or leave both out")
	case o.documents != "" && o.settings != "":
		return errors.New("--documents, --settings: name one of them")
	case o.settings != "" && o.hostProfile == "":
		return errors.New("--settings: the documents depend on the Host; name --host-profile")
	case o.settings != "" && o.fromBundle != "":
		return errors.New("--settings: images are read from their registries, and a bundle is verified without network; name --documents")
	}
	if o.measurement == "" {
		return nil
	}
	if o.hostProfile != "" || o.documents != "" || o.settings != "" || o.guestImage != "" || o.shimImage != "" || o.imagesLock != "" || o.gpus >= 0 {
		return errors.New("--measurement: it has host, documents and images in it; leave their options out, or name --repo")
	}
	digest, err := hex.DecodeString(strings.TrimPrefix(o.measurement, "sha256:"))
	if err != nil || len(digest) != sha256.Size {
		return errors.New("--measurement: not sha256: and 64 hexadecimal digits; compute it with `cloister config measure`")
	}
	o.digest = [sha256.Size]byte(digest)
	return nil
}

func (o *options) checkImages() error {
	for name, image := range map[string]string{"--guest-image": o.guestImage, "--shim-image": o.shimImage} {
		if image != "" && !imagePattern.MatchString(image) {
			return fmt.Errorf("%s: %q has no digest; write NAME@sha256:…", name, image)
		}
		if image != "" && o.imagesLock != "" {
			return fmt.Errorf("--images-lock: it has the image of %s; leave one out", name)
		}
	}
	if o.gpus < -1 || o.gpus > 64 {
		return fmt.Errorf("--gpus: %d is not from 0 to 64", o.gpus)
	}
	return nil
}

// checkPlatform reads the launch measurements and the level of firmware.
func (o *options) checkPlatform() error {
	if o.platform != "" {
		for text := range strings.SplitSeq(o.platform, ",") {
			launch, err := hex.DecodeString(text)
			if err != nil || len(launch) != 48 {
				return fmt.Errorf("--platform: %q is not 96 hexadecimal digits; name the launch measurements that you trust", text)
			}
			o.launch = append(o.launch, launch)
		}
	}
	if o.minimumTCB == "" {
		return nil
	}
	var rest string
	found, _ := fmt.Sscanf(o.minimumTCB+"\n", "%d,%d,%d,%d%s", &o.leastTCB.BlSpl, &o.leastTCB.TeeSpl, &o.leastTCB.SnpSpl, &o.leastTCB.UcodeSpl, &rest)
	if found != 4 {
		return fmt.Errorf("--minimum-tcb: %q is not four numbers from 0 to 255: BOOTLOADER,TEE,SNP,MICROCODE", o.minimumTCB)
	}
	return nil
}

func (o *options) checkBundle() error {
	if o.at != "" && o.fromBundle == "" {
		return errors.New("--at: it belongs to --from-bundle; a connection is verified now")
	}
	if o.bundle != "" && (o.fromBundle != "" || o.proxy) {
		return errors.New("--bundle: it is written by a verification of a host")
	}
	if o.tlsKey != "" && o.fromBundle == "" {
		return errors.New("--tls-key: it belongs to --from-bundle; a connection has its own")
	}
	if o.nonce != "" && o.fromBundle == "" && o.bundle == "" {
		return errors.New("--nonce: it belongs to --from-bundle, or to --bundle for someone else who chose it; a connection has a new one")
	}
	for option, each := range map[string]struct {
		text  string
		bytes *[]byte
	}{"--nonce": {o.nonce, &o.ownNonce}, "--tls-key": {o.tlsKey, &o.ownKey}} {
		read, err := hex.DecodeString(each.text)
		if err != nil || each.text != "" && len(read) != sha256.Size {
			return fmt.Errorf("%s: %q is not 64 hexadecimal digits", option, each.text)
		}
		*each.bytes = read
	}
	o.target.Nonce = o.ownNonce
	switch o.at {
	case "":
	case "now":
		o.verifiedAt = time.Now()
	default:
		at, err := time.Parse(time.RFC3339, o.at)
		if err != nil {
			return fmt.Errorf("--at: %q is neither now nor a time such as 2026-11-27T12:00:00Z", o.at)
		}
		o.verifiedAt = at
	}
	return nil
}

func (o *options) checkProxy() error {
	if !o.proxy {
		if o.listen != "" || o.anywhere || o.names != "" {
			return errors.New("--listen, --listen-anywhere, --listen-names: they belong to `cloister-verify proxy`")
		}
		return nil
	}
	host, _, err := net.SplitHostPort(o.listen)
	address := net.ParseIP(host)
	switch {
	case o.fromBundle != "" || o.json:
		return errors.New("proxy: --from-bundle and --json belong to a single verification")
	case err != nil || address == nil:
		return fmt.Errorf("--listen: %q is not an address and a port; write 127.0.0.1:PORT", o.listen)
	case !address.IsLoopback() && !o.anywhere:
		return fmt.Errorf("--listen: %s is not of the loopback: what reaches the proxy is not encrypted, and anyone could use it; write 127.0.0.1, or add --listen-anywhere", host)
	case o.names != "" && !namesPattern.MatchString(o.names):
		return fmt.Errorf("--listen-names: %q is not a list of host names; write them without ports, separated by commas", o.names)
	case o.recheck < time.Second:
		return fmt.Errorf("--recheck: %s is less than a second", o.recheck)
	}
	return nil
}
