package models

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"cloister.dev/guest/internal/foundation/strictjson"
)

// testdata contains an image of four files, made by mkfs.erofs 1.5 and veritysetup 2.6.1
// as `cloister models pack` calls them.
const (
	repo = "example/tiny@0123456789abcdef0123456789abcdef01234567"
	hash = "76914cd0b4dd5e6ed0f5fad3909219086eba8da11fa623bb603f6e0830359dce"
	mpk  = hash + "_16384_6493760e-f831-5d28-81b4-39e665a8095a"
)

var quiet = slog.New(slog.DiscardHandler)

// store creates a store with a copy of the image, and returns a spec for it.
func store(t *testing.T, change func(image []byte) []byte) Spec {
	t.Helper()
	directory := t.TempDir()
	image, err := os.ReadFile(filepath.Join("testdata", hash+".mpk"))
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		image = change(image)
	}
	spec := Spec{
		Version: Version, Store: filepath.Join(directory, "store"), Target: filepath.Join(directory, "mpk"),
		Status: filepath.Join(directory, "status.json"), Models: []Model{{Name: "tiny", Repo: repo, MPK: mpk}},
	}
	for _, path := range []string{spec.Store, spec.Target} {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(spec.Store, hash+".mpk"), image, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = removeTree(filepath.Join(spec.Target, "mpk-"+hash)) })
	return spec
}

func readStatus(t *testing.T, spec Spec) Status {
	t.Helper()
	data, err := os.ReadFile(spec.Status)
	if err != nil {
		t.Fatal(err)
	}
	var status Status
	if err := json.Unmarshal(data, &status); err != nil {
		t.Fatal(err)
	}
	return status
}

func TestTheFilesOfAModelAreUnpacked(t *testing.T) {
	spec := store(t, nil)
	if err := Run(context.Background(), spec, quiet); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(spec.Target, "mpk-"+hash)
	modes := map[string]fs.FileMode{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		about, err := entry.Info()
		name, _ := filepath.Rel(root, path)
		modes[name] = about.Mode()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]fs.FileMode{
		".": fs.ModeDir | 0o555, "config.json": 0o444, "empty": 0o444, "weights": fs.ModeDir | 0o555,
		"weights/model.safetensors": 0o444, "latest": fs.ModeSymlink | 0o777,
	}
	for name, mode := range want {
		if modes[name] != mode {
			t.Errorf("%s has mode %v", name, modes[name])
		}
	}
	if len(modes) != len(want) {
		t.Errorf("there are %v", modes)
	}
	if text, err := os.ReadFile(filepath.Join(root, "config.json")); err != nil || string(text) != "{\"model_type\": \"tiny\"}\n" {
		t.Errorf("config.json has %q, %v", text, err)
	}
	if weights, err := os.ReadFile(filepath.Join(root, "latest")); err != nil || len(weights) != 400*32 {
		t.Errorf("the weights have %d bytes, %v", len(weights), err)
	}
	status := readStatus(t, spec)
	if status.State != stateOK || status.EndedAt == nil || status.Message != "" || len(status.Models) != 1 {
		t.Fatalf("the status is %+v", status)
	}
	if one := status.Models[0]; one.Name != "tiny" || one.RootHash != hash || one.Files != 3 || one.Bytes != 400*32+23 {
		t.Errorf("the status is %+v", one)
	}
}

func TestASecondAttemptStartsFromScratch(t *testing.T) {
	spec := store(t, nil)
	for range 2 {
		if err := Run(context.Background(), spec, quiet); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInvalidModelsStopTheBoot(t *testing.T) {
	flip := func(at int) func([]byte) []byte {
		return func(image []byte) []byte { image[at] ^= 4; return image }
	}
	for name, trial := range map[string]struct {
		change   func([]byte) []byte
		document func(*Spec)
		code     int
		want     string
	}{
		"a bit of the data":      {flip(9000), nil, exitInvalid, "its data at byte 8192 does not lead to the root hash " + hash},
		"a bit that no file has": {flip(3000), nil, exitInvalid, "its data at byte 0"},
		"a bit of the tree":      {flip(16384 + 4096 + 8), nil, exitInvalid, "its hash tree at byte 20480"},
		"too short":              {func(image []byte) []byte { return image[:20000] }, nil, exitInvalid, "it ends before byte 24576"},
		"another UUID":           {nil, func(d *Spec) { d.Models[0].MPK = strings.Replace(mpk, "6493", "6494", 1) }, exitInvalid, "has the UUID 6493760e"},
		"another commit":         {nil, func(d *Spec) { d.Models[0].Repo = strings.Replace(repo, "@0", "@1", 1) }, exitInvalid, "another salt"},
		"another root hash":      {nil, func(d *Spec) { d.Models[0].MPK = strings.Replace(mpk, "76", "77", 1) }, exitMissing, "the model store does not have it: 77914cd0"},
		"another offset":         {nil, func(d *Spec) { d.Models[0].MPK = strings.Replace(mpk, "16384", "12288", 1) }, exitInvalid, "there is no dm-verity signature at byte 12288"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := store(t, trial.change)
			if trial.document != nil {
				trial.document(&spec)
			}
			err := Run(context.Background(), spec, quiet)
			if err == nil || ExitCode(err) != trial.code || !strings.Contains(err.Error(), trial.want) || !strings.Contains(err.Error(), "model tiny (example/tiny@") {
				t.Fatalf("exit code %d, %v", ExitCode(err), err)
			}
			if left, _ := os.ReadDir(spec.Target); len(left) != 0 {
				t.Errorf("%v is left", left)
			}
			if status := readStatus(t, spec); status.State != StateFailed || status.Reason != reasonOf(err) || status.Message != err.Error() || len(status.Models) != 0 {
				t.Errorf("the status is %+v", status)
			}
		})
	}
}

func TestAStoppedBootLeavesNothing(t *testing.T) {
	spec := store(t, nil)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := Run(ctx, spec, quiet); !errors.Is(err, context.Canceled) || ExitCode(err) != 0 {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(spec.Target); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
}

func TestTheStoreMayContainAnything(t *testing.T) {
	spec := store(t, nil)
	path := filepath.Join(spec.Store, hash+".mpk")
	for name, make := range map[string]func() error{
		"a directory": func() error { return os.Mkdir(path, 0o755) },
		"a pipe":      func() error { return unix.Mkfifo(path, 0o644) },
	} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if err := Run(context.Background(), spec, quiet); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

func TestUnsupportedFileSystemsAreExplained(t *testing.T) {
	for want, change := range map[string]func([]byte){
		"pack it without compression": func(image []byte) { image[1024+80] |= 1 }, // feature_incompat
		"not EROFS, or broken":        func(image []byte) { image[1024] ^= 255 },  // magic
	} {
		spec := store(t, nil)
		data, err := os.ReadFile(filepath.Join(spec.Store, hash+".mpk"))
		if err != nil {
			t.Fatal(err)
		}
		change(data)
		_, err = unpack(context.Background(), bytes.NewReader(data[:16384]), room, filepath.Join(spec.Target, "x"))
		if err == nil || ExitCode(err) != exitInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("expected %q, got %v", want, err)
		}
	}
}

// room is the number of bytes that the files of the image in testdata take.
const room = 5 * page

func TestFilesThatTakeTooMuchAreRefused(t *testing.T) {
	spec := store(t, nil)
	data, err := os.ReadFile(filepath.Join(spec.Store, hash+".mpk"))
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(spec.Target, "mpk-"+hash)
	if _, err := unpack(context.Background(), bytes.NewReader(data[:16384]), room-1, target); err == nil || !strings.Contains(err.Error(), "take more room") {
		t.Fatal(err)
	}
	if err := removeTree(target); err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(context.Background(), bytes.NewReader(data[:16384]), room, target); err != nil {
		t.Fatal(err)
	}
}

func TestValidateNamesInvalidFields(t *testing.T) {
	good := store(t, nil)
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Spec){
		"version: 2":                      func(d *Spec) { d.Version = 2 },
		"store: \"\"":                     func(d *Spec) { d.Store = "" },
		"target: \"/a/../b\"":             func(d *Spec) { d.Target = "/a/../b" },
		"status: \"x\"":                   func(d *Spec) { d.Status = "x" },
		"models: 0 entries":               func(d *Spec) { d.Models = nil },
		"models[0].name: \"a b\"":         func(d *Spec) { d.Models[0].Name = "a b" },
		"models[0].repo: \"x\"":           func(d *Spec) { d.Models[0].Repo = "x" },
		"models[0].mpk: \"\"":             func(d *Spec) { d.Models[0].MPK = "" },
		"models[1].mpk: an earlier model": func(d *Spec) { d.Models = append(d.Models, d.Models[0]) },
	} {
		spec := good
		spec.Models = append([]Model(nil), good.Models...)
		change(&spec)
		if err := spec.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("expected %q, got %v", want, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":1,"store":"/store","target":"/mpk","status":"/status","models":[{"name":"tiny","repo":"` + repo + `","mpk":"` + mpk + `"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, err := strictjson.Parse[Spec](data)
		if err != nil {
			return
		}
		for _, model := range spec.Models {
			if model.root() == ([32]byte{}) && !strings.HasPrefix(model.MPK, strings.Repeat("0", 64)) {
				t.Fatalf("a model without a root hash was read from %q", data)
			}
		}
	})
}

// FuzzUnpack reads broken file systems, which only the packer of a model can create: each
// results in files below the target or in an error.
func FuzzUnpack(f *testing.F) {
	data, err := os.ReadFile(filepath.Join("testdata", hash+".mpk"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint16(1024), []byte{0})
	f.Add(uint16(1152), bytes.Repeat([]byte{255}, 32))
	f.Add(uint16(4096), []byte("../../x"))
	f.Fuzz(func(t *testing.T, at uint16, text []byte) {
		broken := append([]byte(nil), data[:16384]...)
		copy(broken[min(int(at), len(broken)):], text)
		target := filepath.Join(t.TempDir(), "model")
		defer func() {
			if err := removeTree(target); err != nil {
				t.Error(err)
			}
		}()
		count, err := unpack(context.Background(), bytes.NewReader(broken), 1<<20, target)
		if err == nil && count.bytes > 1<<20 {
			t.Fatalf("%d bytes were unpacked", count.bytes)
		}
	})
}
