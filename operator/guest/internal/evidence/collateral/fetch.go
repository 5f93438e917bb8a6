// Package collateral fetches what the processor vendors publish about them: certificates, revocation
// lists, levels of firmware. The vendors sign it, so it does not matter who carries it.
package collateral

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"
)

const (
	// maxAnswer is the largest answer in bytes that is read.
	maxAnswer = 256 << 10
	timeout   = 20 * time.Second
)

// vendors are the hosts of AMD's and Intel's services.
var vendors = []string{"kdsintf.amd.com", "api.trustedservices.intel.com", "certificates.trustedservices.intel.com"}

// FromVendors fetches an address of AMD's or Intel's service, and no other.
func FromVendors(address string) (map[string][]string, []byte, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" || !slices.Contains(vendors, parsed.Host) {
		return nil, nil, fmt.Errorf("%s is not an address of a vendor's service", address)
	}
	client := &http.Client{Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return get(context.Background(), client, address, "")
}

// get requests an address, with a bearer token unless it is empty.
func get(ctx context.Context, client *http.Client, address, token string) (map[string][]string, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("%s returned %d", request.URL.Host, response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, nil, err
	}
	if len(body) == 0 || len(body) > maxAnswer {
		return nil, nil, errors.New(request.URL.Host + " returned nothing, or too much")
	}
	return response.Header, body, nil
}
