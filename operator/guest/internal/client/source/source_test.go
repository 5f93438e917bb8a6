package source

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	content = "containers: []\n"
	commit  = "0123456789abcdef0123456789abcdef01234567"
	tagged  = "fedcba9876543210fedcba9876543210fedcba98"
)

// forgeOf serves responses by path and query; a missing one is 404. It returns settings for it.
func forgeOf(t *testing.T, kind string, responses map[string]any) Settings {
	t.Helper()
	return settingsFor(t, kind, http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		response, found := responses[request.URL.EscapedPath()]
		switch held := response.(type) {
		case int:
			writer.Header().Set("Location", "/elsewhere")
			writer.WriteHeader(held)
		case []byte:
			_, _ = writer.Write(held)
		default:
			if !found || request.Header.Get("Authorization") != "Bearer secret" {
				http.NotFound(writer, request)
				return
			}
			_ = json.NewEncoder(writer).Encode(response)
		}
	}))
}

// settingsFor serves a handler over TLS, and returns settings that trust it.
func settingsFor(t *testing.T, kind string, handler http.Handler) Settings {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	folder := t.TempDir()
	authority, token := filepath.Join(folder, "ca.pem"), filepath.Join(folder, "token")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := errors.Join(os.WriteFile(authority, certificate, 0o600), os.WriteFile(token, []byte("secret\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("kind: %s\nbase: %s/\ncaFile: %s\ntokenFile: %s\nfileNames: [other.yml, service-config.yml]\n", kind, server.URL, authority, token)
	settings, err := ReadSettings([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return settings
}

// github are the responses of a release whose tag is annotated.
func github() map[string]any {
	object := func(kind, id string) any { return map[string]any{"object": map[string]string{"type": kind, "sha": id}} }
	entry := map[string]any{"path": "service-config.yml", "mode": "100644", "sha": blobID([]byte(content)), "size": len(content)}
	return map[string]any{
		"/repos/acme/web":                                      map[string]any{},
		"/repos/acme/web/releases/tags/v1.0":                   map[string]any{"draft": false, "published_at": "2026-01-01T00:00:00Z"},
		"/repos/acme/web/git/ref/tags%2Fv1.0":                  object("tag", tagged),
		"/repos/acme/web/git/tags/" + tagged:                   object("commit", commit),
		"/repos/acme/web/git/trees/" + commit:                  map[string]any{"tree": []any{entry}},
		"/repos/acme/web/git/blobs/" + blobID([]byte(content)): []byte(content),
	}
}

func gitea() map[string]any {
	return map[string]any{
		"/api/v1/repos/acme/web":                    map[string]any{},
		"/api/v1/repos/acme/web/releases/tags/v1.0": map[string]any{"draft": false},
		"/api/v1/repos/acme/web/tags/v1.0":          map[string]any{"commit": map[string]string{"sha": commit}},
		"/api/v1/repos/acme/web/contents/service-config.yml": map[string]any{
			"type": "file", "size": len(content), "sha": blobID([]byte(content)), "content": base64.StdEncoding.EncodeToString([]byte(content)),
		},
	}
}

func TestFilesOfForgesAreRead(t *testing.T) {
	for kind, responses := range map[string]map[string]any{kindGitHub: github(), kindGitea: gitea()} {
		read, err := Read(context.Background(), forgeOf(t, kind, responses), "acme/web", "v1.0", commit)
		if err != nil || string(read.File) != content || read.Commit != commit || read.FileName != "service-config.yml" {
			t.Errorf("%s: %+v, %v", kind, read, err)
		}
	}
}

func TestWhatForgesDoNotHaveIsNamed(t *testing.T) {
	blob := "/repos/acme/web/git/blobs/" + blobID([]byte(content))
	file := "/api/v1/repos/acme/web/contents/service-config.yml"
	entry := func(change func(map[string]any)) any {
		made := map[string]any{"path": "service-config.yml", "mode": "100644", "sha": blobID([]byte(content)), "size": len(content)}
		change(made)
		return map[string]any{"tree": []any{made}}
	}
	for name, test := range map[string]struct {
		kind, path string
		response   any
		problem    string
	}{
		"no repository":  {kindGitHub, "/repos/acme/web", nil, "has no published release"},
		"draft":          {kindGitHub, "/repos/acme/web/releases/tags/v1.0", map[string]any{"draft": true, "published_at": "x"}, "no published release"},
		"no commit":      {kindGitHub, "/repos/acme/web/git/tags/" + tagged, map[string]any{"object": map[string]string{"type": "tree", "sha": commit}}, "no commit"},
		"circle of tags": {kindGitHub, "/repos/acme/web/git/tags/" + tagged, map[string]any{"object": map[string]string{"type": "tag", "sha": tagged}}, "no commit"},
		"link":           {kindGitHub, "/repos/acme/web/git/trees/" + commit, entry(func(e map[string]any) { e["mode"] = "120000" }), "not a regular file"},
		"large":          {kindGitHub, "/repos/acme/web/git/trees/" + commit, entry(func(e map[string]any) { e["size"] = maxFile + 1 }), "more than"},
		"no file":        {kindGitHub, "/repos/acme/web/git/trees/" + commit, map[string]any{"tree": []any{}}, "has no other.yml, service-config.yml"},
		"other content":  {kindGitHub, blob, []byte("other"), "did not send"},
		"not JSON":       {kindGitHub, "/repos/acme/web/releases/tags/v1.0", []byte("<html>"), "not what its interface has"},
		"limit":          {kindGitHub, blob, 429, "refuses the request"},
		"forbidden":      {kindGitHub, blob, 403, "refuses the request"},
		"login":          {kindGitHub, blob, 401, "credentials"},
		"redirect":       {kindGitHub, blob, 301, "elsewhere"},
		"broken":         {kindGitHub, blob, 500, "500"},
		"gitea draft":    {kindGitea, "/api/v1/repos/acme/web/releases/tags/v1.0", map[string]any{"draft": true}, "no published release"},
		"gitea commit":   {kindGitea, "/api/v1/repos/acme/web/tags/v1.0", map[string]any{}, "no commit"},
		"directory":      {kindGitea, file, []any{}, "not a regular file"},
		"gitea large":    {kindGitea, file, map[string]any{"type": "file", "size": maxFile + 1}, "more than"},
		"gitea content":  {kindGitea, file, map[string]any{"type": "file", "size": 1, "content": "eA==", "sha": commit}, "did not send"},
	} {
		responses := github()
		if test.kind == kindGitea {
			responses = gitea()
		}
		if responses[test.path] = test.response; name == "no repository" {
			delete(responses, "/repos/acme/web/releases/tags/v1.0")
			responses[test.path] = map[string]any{}
		}
		_, err := Read(context.Background(), forgeOf(t, test.kind, responses), "acme/web", "v1.0", "")
		var failed *Error
		if !errors.As(err, &failed) || !strings.Contains(failed.Problem, test.problem) || failed.Remedy == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestATagThatMovedIsRefused(t *testing.T) {
	_, err := Read(context.Background(), forgeOf(t, kindGitHub, github()), "acme/web", "v1.0", tagged)
	if err == nil || !strings.Contains(err.Error(), "not to "+tagged) {
		t.Fatal(err)
	}
}

func TestNamesThatGitWouldNotTakeAreRefused(t *testing.T) {
	for _, each := range [][3]string{
		{"acme", "v1", ""}, {"acme/web/x", "v1", ""}, {"-x/web", "v1", ""}, {"acme/..", "v1", ""}, {"acme/web", "", ""}, {"acme/web", "-v1", ""},
		{"acme/web", "a..b", ""}, {"acme/web", "a b", ""}, {"acme/web", "a/.b", ""}, {"acme/web", "a.lock", ""}, {"acme/web", "@", ""}, {"acme/web", "v1", "abc"},
	} {
		if _, err := Read(context.Background(), Settings{Kind: kindGit}, each[0], each[1], each[2]); err == nil {
			t.Errorf("%q: read", each)
		}
	}
}

// repository makes a repository with an annotated tag, and serves it by git's own program.
func repository(t *testing.T) Settings {
	t.Helper()
	folder := t.TempDir()
	git := func(arguments ...string) string {
		command := exec.Command("git", append([]string{"-C", folder}, arguments...)...)
		command.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + folder, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.test",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.test",
		}
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %s", arguments, out)
		}
		return strings.TrimSpace(string(out))
	}
	work := filepath.Join(folder, "acme", "web.git")
	git("init", "--quiet", work)
	folder = work
	if err := errors.Join(os.WriteFile(filepath.Join(work, "service-config.yml"), []byte(content), 0o600), os.Symlink("x", filepath.Join(work, "link.yml"))); err != nil {
		t.Fatal(err)
	}
	git("add", ".")
	git("commit", "--quiet", "-m", "x")
	git("tag", "-a", "v1.0", "-m", "x")
	path := git("--exec-path")
	root := filepath.Dir(filepath.Dir(work))
	return settingsFor(t, kindGit, &cgi.Handler{
		Path: filepath.Join(path, "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	})
}

func TestFilesOfPlainGitAreRead(t *testing.T) {
	settings := repository(t)
	read, err := Read(context.Background(), settings, "acme/web", "v1.0", "")
	if err != nil || string(read.File) != content || !commitPattern.MatchString(read.Commit) {
		t.Fatalf("%+v, %v", read, err)
	}
	for name, spoil := range map[string]func(*Settings, *string){
		"no tag": func(_ *Settings, tag *string) { *tag = "v2" },
		"link":   func(s *Settings, _ *string) { s.FileNames = []string{"link.yml"} },
		"none":   func(s *Settings, _ *string) { s.FileNames = []string{"none.yml"} },
		"trust":  func(s *Settings, _ *string) { s.CAFile = "" },
		"token":  func(s *Settings, _ *string) { s.TokenFile = "/none" },
	} {
		spoiled, tag := settings, "v1.0"
		spoil(&spoiled, &tag)
		var failed *Error
		if _, err := Read(context.Background(), spoiled, "acme/web", tag, ""); !errors.As(err, &failed) || failed.Remedy == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSettingsThatDoNotFitAreRefused(t *testing.T) {
	for _, text := range []string{
		"kind: svn\nbase: https://x.example\n", "kind: gitea\n", "kind: git\nbase: http://x.example\n", "kind: git\nbase: https://u:p@x.example\n",
		"kind: git\nbase: https://x.example?a\n", "kind: git\nbase: https://x.example\nurlSuffix: .hg\n", "kind: github\nfileNames: [a/b]\n",
		"kind: github\nsshKeyFile: x\n", "[",
	} {
		if settings, err := ReadSettings([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, settings)
		}
	}
	if settings, err := ReadSettings(nil); err != nil || settings.Base != "https://api.github.com" {
		t.Errorf("%+v, %v", settings, err)
	}
	if _, err := ReadSettings([]byte("kind: git\nbase: http://127.0.0.1:1\nplainHttp: ['127.0.0.1:1']\n")); err != nil {
		t.Error(err)
	}
}
