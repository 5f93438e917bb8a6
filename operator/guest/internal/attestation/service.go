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
	// askTimeout bounds one question. A TD quote takes the host's quoting service up to some seconds.
	askTimeout = 20 * time.Second
	// maxEvidence is the largest evidence that is read: a TDX event log is of the order of 64 KiB.
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

// evidence asks for evidence of the processor that binds report data.
func (s *service) evidence(ctx context.Context, reportData []byte) ([]byte, error) {
	return s.get(ctx, "/aa/evidence", reportData)
}

// gpuEvidence asks for evidence of further devices, which binds the same.
func (s *service) gpuEvidence(ctx context.Context, reportData []byte) ([]byte, error) {
	found, err := s.get(ctx, "/aa/additional-evidence", reportData)
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
		return nil, fmt.Errorf("the attestation service of the machine does not answer: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, refusalError(path, response)
	}
	found, err := io.ReadAll(io.LimitReader(response.Body, maxEvidence+1))
	if err != nil {
		return nil, fmt.Errorf("the attestation service broke off its answer: %w", err)
	}
	if len(found) == 0 || len(found) > maxEvidence {
		return nil, fmt.Errorf("the attestation service answered %d bytes, between 1 and %d are evidence", len(found), maxEvidence)
	}
	return found, nil
}

// refusalError says what a refusal of the attestation service means.
func refusalError(path string, response *http.Response) error {
	if response.StatusCode == http.StatusNotFound {
		return fmt.Errorf("the attestation service has no %s: start the guest with the kernel parameter "+
			"agent.guest_components_rest_api=all", path)
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	said := strings.ToValidUTF8(strings.TrimSpace(string(text)), "")
	return fmt.Errorf("the attestation service answered %d to %s: %s", response.StatusCode, path, said)
}
