package sshd

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"cloister.dev/guest/internal/foundation/strictjson"
	"cloister.dev/guest/internal/foundation/unmeasured"
)

func line(t testing.TB, public any) string {
	t.Helper()
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

func valid(t testing.TB) Spec {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return Spec{Version: Version, Port: 22, HostKeyFile: "/state/host", PublicKeyFile: "/shown/host.pub",
		Keys: []unmeasured.SSHKey{{Name: "me", PublicKey: line(t, public) + " me@home"}}, Containers: []Target{{Name: "app", Socket: "/shells/app/shell.sock"}}}
}

func TestValidate(t *testing.T) {
	if err := valid(t).Validate(); err != nil {
		t.Fatal(err)
	}
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	weak := line(t, &short.PublicKey)
	for field, change := range map[string]func(*Spec){
		"version":              func(d *Spec) { d.Version = 1 },
		"port":                 func(d *Spec) { d.Port = 0 },
		"hostKeyFile":          func(d *Spec) { d.HostKeyFile = "host" },
		"publicKeyFile":        func(d *Spec) { d.PublicKeyFile = "" },
		"sshKeys: 1":           func(d *Spec) { d.Keys = nil },
		"containers: 1":        func(d *Spec) { d.Containers = nil },
		"sshKeys[0].name":      func(d *Spec) { d.Keys[0].Name = "Me" },
		"sshKeys[0].publicKey": func(d *Spec) { d.Keys[0].PublicKey = "ssh-ed25519 AAAA me" },
		"more than a type":     func(d *Spec) { d.Keys[0].PublicKey = `command="id" ` + d.Keys[0].PublicKey },
		"1024 bits":            func(d *Spec) { d.Keys[0].PublicKey = weak },
		"containers[0].name":   func(d *Spec) { d.Containers[0].Name = "a b" },
		"containers[1].name":   func(d *Spec) { d.Containers = append(d.Containers, d.Containers[0]) },
		"containers[0].socket": func(d *Spec) { d.Containers[0].Socket = "shell.sock" },
	} {
		spec := valid(t)
		change(&spec)
		if err := errors.Join(spec.Validate(), validateKeys(spec.Keys)); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestHostKeyIsGeneratedOnce(t *testing.T) {
	directory := t.TempDir()
	spec := Spec{HostKeyFile: filepath.Join(directory, "host"), PublicKeyFile: filepath.Join(directory, "host.pub")}
	first, err := hostKey(spec)
	if err != nil {
		t.Fatal(err)
	}
	second, err := hostKey(spec)
	if err != nil || string(first.PublicKey().Marshal()) != string(second.PublicKey().Marshal()) {
		t.Errorf("another key: %v", err)
	}
	about, err := os.Stat(spec.HostKeyFile)
	if err != nil || about.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", about, err)
	}
	shown, err := os.ReadFile(spec.PublicKeyFile)
	if err != nil || string(shown) != string(ssh.MarshalAuthorizedKey(first.PublicKey())) {
		t.Errorf("%s, %v", shown, err)
	}
}

func FuzzDocument(f *testing.F) {
	f.Add([]byte(`{"version":2,"port":22,"hostKeyFile":"/a","publicKeyFile":"/b","containers":[{"name":"a","socket":"/s"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if spec, err := strictjson.Decode[Spec](data); err == nil && spec.Validate() == nil && len(spec.Containers) == 0 {
			t.Errorf("%+v", spec)
		}
	})
}

func TestAnUnknownLoginNameGetsTheListOfContainers(t *testing.T) {
	server := &server{spec: Spec{Containers: []Target{{Name: "a"}, {Name: "b"}}}}
	if _, err := server.socketOf("c"); err == nil || !strings.HasSuffix(err.Error(), "one of: a, b") {
		t.Error(err)
	}
}
