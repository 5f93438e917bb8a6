package source

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Kinds of sources, with the names of the installation's settings.
const (
	kindGitHub = "github"
	kindGitea  = "gitea"
	kindGit    = "git"
	maxFile    = 256 << 10
)

// Settings are the locations of repositories. Names and meanings are those of `sources` in the settings of
// the operator, of which these are what reads over HTTPS.
type Settings struct {
	// Kind is github, gitea or git.
	Kind string `yaml:"kind"`
	// Base is the address of the interface (github), of the server (gitea) or of what the repositories
	// lie below (git). It has a default only for github.
	Base string `yaml:"base"`
	// URLSuffix follows owner/name in addresses of git: .git or nothing.
	URLSuffix *string `yaml:"urlSuffix"`
	// TokenFile is the file with a token; empty means none.
	TokenFile string `yaml:"tokenFile"`
	// Username belongs to the token (git).
	Username string `yaml:"username"`
	// CAFile is a PEM file with the only authorities to trust; empty means the public ones.
	CAFile string `yaml:"caFile"`
	// FileNames are the names of the configuration file; the first that exists is read.
	FileNames []string `yaml:"fileNames"`
	// PlainHTTP lists hosts, HOST or HOST:PORT, that may be called without TLS.
	PlainHTTP []string `yaml:"plainHttp"`
}

var fileNamePattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$`)

// ReadSettings reads settings; no text means GitHub.
func ReadSettings(content []byte) (Settings, error) {
	settings := Settings{Kind: kindGitHub}
	if len(content) > 0 {
		settings.Kind = ""
		decoder := yaml.NewDecoder(bytes.NewReader(content))
		decoder.KnownFields(true)
		if err := decoder.Decode(&settings); err != nil {
			return Settings{}, fmt.Errorf("%w; known are kind, base, urlSuffix, tokenFile, username, caFile, fileNames and plainHttp", err)
		}
	}
	if settings.Base == "" && settings.Kind == kindGitHub {
		settings.Base = "https://api.github.com"
	}
	if len(settings.FileNames) == 0 {
		settings.FileNames = []string{"service-config.yml"}
	}
	if settings.Username == "" {
		settings.Username = "x-access-token"
	}
	if settings.URLSuffix == nil {
		settings.URLSuffix = new(string)
		*settings.URLSuffix = ".git"
	}
	settings.Base = strings.TrimRight(settings.Base, "/")
	return settings, settings.check()
}

func (s Settings) check() error {
	if !slices.Contains([]string{kindGitHub, kindGitea, kindGit}, s.Kind) {
		return fmt.Errorf("kind: %q is not github, gitea or git", s.Kind)
	}
	base, err := url.Parse(s.Base)
	switch {
	case err != nil || base.Host == "":
		return fmt.Errorf("base: %q is not an address such as https://git.example.com", s.Base)
	case base.User != nil:
		return errors.New("base: it contains credentials; put the token into tokenFile")
	case base.RawQuery != "" || base.Fragment != "":
		return errors.New("base: it has a query or fragment; write only the address")
	case base.Scheme == "http" && slices.Contains(s.PlainHTTP, base.Host):
	case base.Scheme != "https":
		return fmt.Errorf("base: %q is not an https address; only hosts in plainHttp may be called without TLS", s.Base)
	case *s.URLSuffix != "" && *s.URLSuffix != ".git":
		return fmt.Errorf("urlSuffix: %q is neither .git nor empty", *s.URLSuffix)
	}
	for _, name := range s.FileNames {
		if !fileNamePattern.MatchString(name) {
			return fmt.Errorf("fileNames: %q is not the name of a file in the root directory", name)
		}
	}
	return nil
}

// token returns the token, or nothing if none is set.
func (s Settings) token() (string, error) {
	if s.TokenFile == "" {
		return "", nil
	}
	content, err := os.ReadFile(s.TokenFile)
	if err != nil {
		return "", failed("check tokenFile of --source", "the token cannot be read: %v", err)
	}
	token := strings.TrimSpace(string(content))
	for _, each := range token {
		if each < 0x21 || each > 0x7e {
			return "", failed("check tokenFile of --source", "the token contains characters that are not allowed in tokens")
		}
	}
	return token, nil
}
