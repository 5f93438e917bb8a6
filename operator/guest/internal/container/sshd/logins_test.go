package sshd

import (
	"crypto/ed25519"
	"crypto/rand"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"cloister.dev/guest/internal/foundation/unmeasured"
)

func TestConnectionsWithoutALoginKeepNobodyOut(t *testing.T) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	spec := Spec{HostKeyFile: filepath.Join(directory, "host"), PublicKeyFile: filepath.Join(directory, "host.pub"),
		Keys: []unmeasured.SSHKey{{Name: "me", PublicKey: string(ssh.MarshalAuthorizedKey(own.PublicKey()))}}}
	signer, err := hostKey(spec)
	if err != nil {
		t.Fatal(err)
	}
	made, err := newServer(spec, signer, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = made.serve(t.Context(), listener) }()
	for range maxLogins + 10 {
		idle, err := net.Dial("tcp4", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer idle.Close()
	}
	client, err := ssh.Dial("tcp", listener.Addr().String(), &ssh.ClientConfig{User: "app", Auth: []ssh.AuthMethod{ssh.PublicKeys(own)},
		HostKeyCallback: ssh.FixedHostKey(signer.PublicKey()), Timeout: 10 * time.Second})
	if err != nil {
		t.Fatalf("the key's owner cannot log in: %v", err)
	}
	client.Close()
}
