package attestation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// askTimeout bounds one request. The host's quoting service may take seconds for a TD quote.
	askTimeout = 20 * time.Second
	// maxEvidence is the largest evidence in bytes that is read: a TDX event log has about 64 KiB.
	maxEvidence = 1 << 20
	maxRefusal  = 512
)

// service is the attestation service of the machine: the REST server of the guest
// components (api-server-rest, "Attestation Agent API").
type service struct {
	base   string
	client *http.Client
}

func newService(address string) *service {
	base, dialer := address, net.Dialer{}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
	if socket, found := strings.CutPrefix(address, "unix://"); found {
		base = "http://attestation"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	client := &http.Client{
		Transport:     transport,
		Timeout:       askTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &service{base: base, client: client}
}

// HostData returns the digest that the processor reports of what the machine was started with, from
// evidence of an attestation service.
func HostData(ctx context.Context, tee, address string) ([]byte, error) {
	if err := CheckService(tee, address); err != nil {
		return nil, err
	}
	reportData := make([]byte, reportDataSize)
	found, err := newService(address).evidence(ctx, tee, reportData)
	if err != nil {
		return nil, err
	}
	return found.hostData, found.compare(reportData, nil)
}

// RawReport returns the format of the processor's evidence, and evidence that binds nothing: it says
// which processor this is.
func RawReport(ctx context.Context, tee, address string) (string, []byte, error) {
	if err := CheckService(tee, address); err != nil {
		return "", nil, err
	}
	found, err := newService(address).evidence(ctx, tee, make([]byte, reportDataSize))
	return found.format, found.report, err
}

// evidence requests evidence of the processor that binds report data.
func (s *service) evidence(ctx context.Context, tee string, reportData []byte) (evidence, error) {
	found, err := s.get(ctx, "/aa/evidence", reportData)
	if err != nil {
		return evidence{}, err
	}
	return readEvidence(tee, found)
}

// gpuEvidence requests evidence of the GPUs that binds a challenge.
func (s *service) gpuEvidence(ctx context.Context, challenge []byte) ([]byte, error) {
	found, err := s.get(ctx, "/aa/additional-evidence", challenge)
	if err != nil {
		return nil, err
	}
	var devices map[string]json.RawMessage
	if json.Unmarshal(found, &devices) != nil || len(devices) == 0 {
		return nil, errors.New("the attestation service has no evidence of a GPU")
	}
	return found, nil
}

func (s *service) get(ctx context.Context, path string, reportData []byte) ([]byte, error) {
	query := url.Values{"runtime_data": {runtimeData(reportData)}, "encoding": {"base64"}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		var about *url.Error
		if errors.As(err, &about) {
			err = about.Err
		}
		return nil, fmt.Errorf("the attestation service of the machine does not respond: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, refusalError(path, response)
	}
	found, err := io.ReadAll(io.LimitReader(response.Body, maxEvidence+1))
	if err != nil {
		return nil, fmt.Errorf("the attestation service aborted its response: %w", err)
	}
	if len(found) == 0 || len(found) > maxEvidence {
		return nil, fmt.Errorf("the attestation service returned %d bytes; evidence has between 1 and %d", len(found), maxEvidence)
	}
	return found, nil
}

// refusalError describes an error response of the attestation service.
func refusalError(path string, response *http.Response) error {
	if response.StatusCode == http.StatusNotFound {
		return fmt.Errorf("the attestation service has no %s: start the guest with the kernel parameter "+
			"agent.guest_components_rest_api=all", path)
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	said := strings.ToValidUTF8(strings.TrimSpace(string(text)), "")
	return fmt.Errorf("the attestation service returned %d for %s: %s", response.StatusCode, path, said)
}
