package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"cloister.dev/guest/internal/client/recompute"
	"cloister.dev/guest/internal/client/source"
	"cloister.dev/guest/internal/client/verify"
	"cloister.dev/guest/internal/foundation/strictjson"
)

// maxInput is the largest file that an option names, in bytes.
const maxInput = 8 << 20

// imageDigests are the images of ours in every enclave, as images.lock has them.
type imageDigests struct {
	Digests map[string]string `toml:"digests"`
}

// readInputs reads what the measurement is computed from; the release is nil without --repo.
func readInputs(ctx context.Context, chosen options) (recompute.Inputs, *source.Release, error) {
	inputs := recompute.Inputs{Service: chosen.target.Service, GuestImage: chosen.guestImage, ShimImage: chosen.shimImage}
	if chosen.gpus >= 0 {
		inputs.GPUs = &chosen.gpus
	}
	var release *source.Release
	var err error
	if chosen.repo != "" {
		release, err = fetchRelease(ctx, chosen)
		if err != nil {
			return inputs, nil, err
		}
		inputs.Config = release.File
	} else if chosen.file != "" {
		if inputs.Config, err = readFile("--file", chosen.file); err != nil {
			return inputs, nil, err
		}
	}
	if chosen.hostProfile != "" {
		if inputs.HostProfile, err = readFile("--host-profile", chosen.hostProfile); err != nil {
			return inputs, nil, err
		}
	}
	if chosen.imagesLock != "" {
		if err := readLock(chosen.imagesLock, &inputs); err != nil {
			return inputs, nil, err
		}
	}
	inputs.Documents, err = readDocuments(ctx, chosen, inputs)
	return inputs, release, err
}

func fetchRelease(ctx context.Context, chosen options) (*source.Release, error) {
	var text []byte
	var err error
	if chosen.source != "" {
		if text, err = readFile("--source", chosen.source); err != nil {
			return nil, err
		}
	}
	settings, err := source.ReadSettings(text)
	if err != nil {
		return nil, badInput("--source", err, "write it as `sources` in the settings of the installation")
	}
	release, err := source.Read(ctx, settings, chosen.repo, chosen.tag, chosen.commit)
	var failed *source.Error
	if errors.As(err, &failed) {
		return nil, &verify.Failure{Class: verify.ClassSource, Step: "configuration file", Problem: failed.Problem, Remedy: failed.Remedy}
	}
	return &release, err
}

func readLock(path string, inputs *recompute.Inputs) error {
	text, err := readFile("--images-lock", path)
	if err != nil {
		return err
	}
	var lock imageDigests
	const remedy = "name the images.lock of a release"
	if err := toml.Unmarshal(text, &lock); err != nil {
		return badInput("--images-lock", err, remedy)
	}
	inputs.GuestImage, inputs.ShimImage = lock.Digests["cloister-guest"], lock.Digests["cloister-shim"]
	for _, digest := range []string{inputs.GuestImage, inputs.ShimImage} {
		if !imagePattern.MatchString("image@" + digest) {
			return badInput("--images-lock", errors.New("it has no digests of cloister-guest and cloister-shim"), remedy)
		}
	}
	return nil
}

// readDocuments reads the enclave's documents, or has the program cloister make them; nil if the
// command line names neither.
func readDocuments(ctx context.Context, chosen options, inputs recompute.Inputs) (map[string]string, error) {
	var text []byte
	var err error
	switch {
	case chosen.documents != "":
		text, err = readFile("--documents", chosen.documents)
	case chosen.settings != "":
		text, err = makeDocuments(ctx, chosen, inputs)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	documents, err := strictjson.DecodeUpTo[map[string]string](text, maxInput)
	if err == nil && len(documents) == 0 {
		err = errors.New("there are none")
	}
	if err != nil {
		return nil, badInput("--documents", err, "write the file by `cloister documents`")
	}
	return documents, nil
}

// makeDocuments runs `cloister documents`, which derives them as the operator does.
func makeDocuments(ctx context.Context, chosen options, inputs recompute.Inputs) ([]byte, error) {
	folder, err := os.MkdirTemp("", "cloister-verify-")
	if err != nil {
		return nil, badInput("--settings", err, "make room in the directory for temporary files")
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "service-config.yml")
	if err := os.WriteFile(file, inputs.Config, 0o600); err != nil {
		return nil, badInput("--settings", err, "make room in the directory for temporary files")
	}
	arguments := []string{"documents", file, "--host", chosen.hostProfile, "--settings", chosen.settings}
	if inputs.GPUs != nil {
		arguments = append(arguments, "--gpus", fmt.Sprint(*inputs.GPUs))
	}
	var messages strings.Builder
	command := exec.CommandContext(ctx, "cloister", arguments...)
	command.Stderr = &messages
	out, err := command.Output()
	if err != nil {
		return nil, badInput("--settings", fmt.Errorf("`cloister documents` failed: %w: %.600s", err, strings.TrimSpace(messages.String())),
			"install Cloister's package with the extra operator, or make the file elsewhere and name it in --documents")
	}
	return out, nil
}

func readFile(option, path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxInput {
		err = fmt.Errorf("%s has %d bytes, at most %d are read", path, info.Size(), maxInput)
	}
	if err != nil {
		return nil, badInput(option, err, "name a file that can be read")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, badInput(option, err, "name a file that can be read")
	}
	return text, nil
}

func badInput(option string, err error, remedy string) error {
	return &verify.Failure{Class: verify.ClassUsage, Step: option, Problem: err.Error(), Remedy: remedy}
}
