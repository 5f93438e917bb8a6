package sshd

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	loginPatience  = 30 * time.Second
	maxLogins      = 64
	maxConnections = 64
	maxSessions    = 10
	maxTries       = 6
	keyName        = "key-name"
)

// keyAlgorithms are the algorithms of client keys: those of an SSHKey, RSA only with SHA-2.
var keyAlgorithms = []string{
	ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256,
	ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
}

// server is the SSH server of one enclave.
type server struct {
	spec   Spec
	config *ssh.ServerConfig
	log    *slog.Logger
	// waiting are the connections before a login, room has a place for each after it.
	waiting *logins
	room    chan struct{}
}

// Run serves until the context is done.
func Run(ctx context.Context, spec Spec, log *slog.Logger) error {
	signer, err := hostKey(spec)
	if err != nil {
		return err
	}
	made, err := newServer(spec, signer, log)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(int(spec.Port)))
	if err != nil {
		return fmt.Errorf("port %d: %w", spec.Port, err)
	}
	log.Info("serving", "port", spec.Port, "host_key", ssh.FingerprintSHA256(signer.PublicKey()))
	return made.serve(ctx, listener)
}

func newServer(spec Spec, signer ssh.Signer, log *slog.Logger) (*server, error) {
	made := &server{spec: spec, log: log, waiting: &logins{most: maxLogins}, room: make(chan struct{}, maxConnections)}
	known := make([]ssh.PublicKey, 0, len(spec.Keys))
	for _, key := range spec.Keys {
		parsed, err := parseKey(key.PublicKey)
		if err != nil {
			return nil, err
		}
		known = append(known, parsed)
	}
	made.config = &ssh.ServerConfig{
		MaxAuthTries:            maxTries,
		ServerVersion:           "SSH-2.0-cloister",
		PublicKeyAuthAlgorithms: keyAlgorithms,
		PublicKeyCallback: func(_ ssh.ConnMetadata, offered ssh.PublicKey) (*ssh.Permissions, error) {
			for index, key := range known {
				if subtle.ConstantTimeCompare(key.Marshal(), offered.Marshal()) == 1 {
					return &ssh.Permissions{Extensions: map[string]string{keyName: spec.Keys[index].Name}}, nil
				}
			}
			return nil, errors.New("the key is not among the Container's sshKeys")
		},
	}
	made.config.AddHostKey(signer)
	return made, nil
}

// serve accepts connections. Those before a login and those after it are bounded apart.
func (s *server) serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	for {
		accepted, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if oldest := s.waiting.add(accepted); oldest != nil {
			s.log.Warn("too many connections without a login", "closed", oldest.RemoteAddr().String())
			oldest.Close()
		}
		go s.connection(ctx, accepted)
	}
}

// connection serves one client until it disconnects.
func (s *server) connection(ctx context.Context, accepted net.Conn) {
	defer accepted.Close()
	stop := context.AfterFunc(ctx, func() { accepted.Close() })
	defer stop()
	from := accepted.RemoteAddr().String()
	conn, channels, requests, err := s.login(accepted)
	if err != nil {
		s.log.Info("login failed", "from", from, "reason", err.Error())
		return
	}
	defer conn.Close()
	select {
	case s.room <- struct{}{}:
		defer func() { <-s.room }()
	default:
		s.log.Warn("too many connections", "from", from)
		return
	}
	if err := accepted.SetDeadline(time.Time{}); err != nil {
		return
	}
	log := s.log.With("from", from, "container", conn.User(), "key", conn.Permissions.Extensions[keyName])
	log.Info("logged in")
	defer log.Info("logged out")
	// Global requests are for forwarding or keepalives: all are refused.
	go ssh.DiscardRequests(requests)
	var sessions sync.WaitGroup
	defer sessions.Wait()
	room := make(chan struct{}, maxSessions)
	for channel := range channels {
		if channel.ChannelType() != "session" {
			reject(channel, ssh.Prohibited, "forwarding into or out of an enclave is not permitted")
			continue
		}
		select {
		case room <- struct{}{}:
		default:
			reject(channel, ssh.ResourceShortage, fmt.Sprintf("more than %d sessions in one connection", maxSessions))
			continue
		}
		sessions.Go(func() {
			defer func() { <-room }()
			s.session(conn.User(), channel, log)
		})
	}
}

// login waits until a client has logged in.
func (s *server) login(accepted net.Conn) (*ssh.ServerConn, <-chan ssh.NewChannel, <-chan *ssh.Request, error) {
	defer s.waiting.remove(accepted)
	if err := accepted.SetDeadline(time.Now().Add(loginPatience)); err != nil {
		return nil, nil, nil, err
	}
	return ssh.NewServerConn(accepted, s.config)
}

// reject refuses a channel; an error means that the client is gone.
func reject(channel ssh.NewChannel, reason ssh.RejectionReason, text string) {
	_ = channel.Reject(reason, text)
}

// socketOf returns the shell socket of the container with a login name.
func (s *server) socketOf(name string) (string, error) {
	names := ""
	for _, container := range s.spec.Containers {
		if container.Name == name {
			return container.Socket, nil
		}
		names += ", " + container.Name
	}
	return "", fmt.Errorf("there is no container %q in this enclave; log in as one of: %s", name, names[2:])
}
