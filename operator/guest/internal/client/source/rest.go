package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
)

// maxResponse is the largest response of a forge: a list of the files in a large directory.
const maxResponse = 8 << 20

// forge is the REST interface of one repository.
type forge struct {
	client  *http.Client
	base    string // address of the repository in the interface
	repo    string
	headers map[string]string
}

func newForge(settings Settings, base, repo string, headers map[string]string) (*forge, error) {
	token, err := settings.token()
	if err != nil {
		return nil, err
	}
	if token != "" {
		headers["Authorization"] = "Bearer " + token
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if settings.CAFile != "" {
		content, err := os.ReadFile(settings.CAFile)
		if err != nil {
			return nil, failed("check caFile of --source", "%v", err)
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(content) {
			return nil, failed("check caFile of --source", "it has no certificate")
		}
	}
	client := &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust, ForceAttemptHTTP2: true},
		// A repository that was renamed is another one than was named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &forge{client: client, base: base + "/repos/" + repo, repo: repo, headers: headers}, nil
}

func (f *forge) close() { f.client.CloseIdleConnections() }

// get returns a response's body; nil if the forge has no such thing.
func (f *forge) get(ctx context.Context, path, accept string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.base+path, nil)
	if err != nil {
		return nil, failed("check base of --source", "%v", err)
	}
	for name, value := range f.headers {
		request.Header.Set(name, value)
	}
	request.Header.Set("Accept", accept)
	request.Header.Set("User-Agent", "cloister-verify")
	response, err := f.client.Do(request)
	if err != nil {
		return nil, failed("try it again, or verify by --file with a file that you have", "the forge does not respond for %s: %v", f.repo, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	switch {
	case err != nil:
		return nil, failed("try it again", "the forge's response for %s breaks off: %v", f.repo, err)
	case len(body) > maxResponse:
		return nil, failed("verify by --file with a file that you have", "the forge's response for %s is too large", f.repo)
	case response.StatusCode == http.StatusOK:
		return body, nil
	case response.StatusCode == http.StatusNotFound:
		return nil, nil
	case response.StatusCode == http.StatusUnauthorized:
		return nil, failed("set or renew tokenFile of --source", "the forge requires credentials for %s", f.repo)
	case response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusForbidden:
		return nil, failed("wait, or set tokenFile of --source: with a token more requests are allowed", "the forge refuses the request for %s (%s)", f.repo, response.Status)
	case response.StatusCode >= 300 && response.StatusCode < 400:
		return nil, failed("write the repository's present name", "the forge leads %s elsewhere, which is not followed", f.repo)
	}
	return nil, failed("try it again", "the forge responds with %s for %s", response.Status, f.repo)
}

// object returns a response read as JSON; found is false if the forge has no such thing.
func (f *forge) object(ctx context.Context, path, accept string, into any) (found bool, err error) {
	body, err := f.get(ctx, path, accept)
	if err != nil || body == nil {
		return false, err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return false, failed("check kind and base of --source", "the forge's response for %s is not what its interface has: %v", f.repo, err)
	}
	return true, nil
}

// whyMissing returns whether the repository, the tag or only its release is missing.
func (f *forge) whyMissing(ctx context.Context, tag, tagPath, accept string) error {
	repository, err := f.get(ctx, "", accept)
	if err != nil {
		return err
	}
	if repository == nil {
		return failed("check the name, and tokenFile of --source if it is private", "there is no repository %s", f.repo)
	}
	reference, err := f.get(ctx, tagPath, accept)
	if err != nil {
		return err
	}
	if reference == nil {
		return failed("name a tag that the repository has", "%s has no tag %s", f.repo, tag)
	}
	return failed("name the tag of a published release", "the tag %s of %s has no published release", tag, f.repo)
}

// escaped returns a text as one part of a path.
func escaped(text string) string {
	var made strings.Builder
	for _, each := range []byte(text) {
		if each >= 'a' && each <= 'z' || each >= 'A' && each <= 'Z' || each >= '0' && each <= '9' || strings.IndexByte("-._~", each) >= 0 {
			made.WriteByte(each)
			continue
		}
		const digits = "0123456789ABCDEF"
		made.WriteByte('%')
		made.WriteByte(digits[each>>4])
		made.WriteByte(digits[each&15])
	}
	return made.String()
}

var errNoCommit = errors.New("no commit")
