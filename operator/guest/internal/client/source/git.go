package source

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// readGit reads a tag of a plain git repository by the program git, into a repository that is removed
// afterwards. No configuration of the user or the system is read, so nothing can lead it elsewhere.
func readGit(ctx context.Context, settings Settings, release *Release) error {
	if _, err := exec.LookPath("git"); err != nil {
		return failed("install git, or verify by --file with a file that you have", "the program git is not installed")
	}
	folder, err := os.MkdirTemp("", "cloister-verify-")
	if err != nil {
		return failed("make room in the directory for temporary files", "%v", err)
	}
	defer os.RemoveAll(folder)
	git, err := newGit(settings, folder)
	if err != nil {
		return err
	}
	if _, err := git.run(ctx, "init", "--quiet", "--bare", "--template="); err != nil {
		return failed("check the program git", "%v", err)
	}
	address := settings.Base + "/" + release.Repo + *settings.URLSuffix
	reference := "refs/tags/" + release.Tag
	if _, err := git.run(ctx, "fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--", address, "+"+reference+":"+reference); err != nil {
		return failed("check base of --source, the repository and the tag", "%s of %s cannot be fetched: %v", release.Tag, release.Repo, err)
	}
	commit, err := git.run(ctx, "rev-parse", "--verify", "--quiet", reference+"^{commit}")
	if release.Commit = strings.TrimSpace(string(commit)); err != nil || !commitPattern.MatchString(release.Commit) {
		return failed("name a tag of a commit", "the tag %s of %s leads to %v", release.Tag, release.Repo, errNoCommit)
	}
	return git.readFile(ctx, settings.FileNames, release)
}

// git runs the program in a folder.
type git struct {
	environment []string
	folder      string
}

func newGit(settings Settings, folder string) (*git, error) {
	token, err := settings.token()
	if err != nil {
		return nil, err
	}
	options := [][2]string{
		{"core.hooksPath", "/dev/null"}, {"credential.helper", ""}, {"http.followRedirects", "false"}, {"http.sslVerify", "true"},
		{"protocol.version", "2"}, {"transfer.bundleURI", "false"}, {"core.symlinks", "false"}, {"gc.auto", "0"}, {"maintenance.auto", "false"},
	}
	if settings.CAFile != "" {
		path, err := filepath.Abs(settings.CAFile)
		if err != nil {
			return nil, failed("check caFile of --source", "%v", err)
		}
		options = append(options, [2]string{"http.sslCAInfo", path})
	}
	if token != "" {
		credentials := base64.StdEncoding.EncodeToString([]byte(settings.Username + ":" + token))
		options = append(options, [2]string{"http.extraHeader", "Authorization: Basic " + credentials})
	}
	environment := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + folder, "LC_ALL=C", "GIT_DIR=" + filepath.Join(folder, "repository"),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ALLOW_PROTOCOL=https:http", "GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=/bin/false", "GIT_NO_REPLACE_OBJECTS=1", fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(options)),
	}
	for _, name := range []string{"https_proxy", "HTTPS_PROXY", "http_proxy", "no_proxy", "NO_PROXY"} {
		if value := os.Getenv(name); value != "" {
			environment = append(environment, name+"="+value)
		}
	}
	// Options go by the environment: a command line can be read by every user of the machine.
	for index, option := range options {
		environment = append(environment, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", index, option[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", index, option[1]))
	}
	return &git{environment: environment, folder: folder}, nil
}

func (g *git) run(ctx context.Context, arguments ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, "git", arguments...)
	command.Dir, command.Env = g.folder, g.environment
	var out, messages bytes.Buffer
	command.Stdout, command.Stderr = &out, &messages
	if err := command.Run(); err != nil {
		said := strings.Join(strings.Fields(messages.String()), " ")
		return nil, fmt.Errorf("git: %.300s (%w)", said, err)
	}
	return out.Bytes(), nil
}

// readFile reads the first of the possible files that the commit has.
func (g *git) readFile(ctx context.Context, names []string, release *Release) error {
	for _, name := range names {
		listed, err := g.run(ctx, "ls-tree", "-z", "--long", release.Commit, "--", name)
		if err != nil {
			return failed("try it again", "the commit of %s cannot be read: %v", release.Repo, err)
		}
		facts := strings.Fields(strings.SplitN(string(listed), "\t", 2)[0])
		if len(facts) == 0 {
			continue
		}
		if len(facts) != 4 || facts[0] != "100644" && facts[0] != "100755" {
			return notRegular(release.Repo, name)
		}
		if len(facts[3]) > 6 { // a million bytes and more
			return tooLarge(release.Repo, name)
		}
		if release.File, err = g.run(ctx, "cat-file", "blob", facts[2]); err != nil {
			return failed("try it again", "%s of %s cannot be read: %v", name, release.Repo, err)
		}
		if len(release.File) > maxFile {
			return tooLarge(release.Repo, name)
		}
		release.FileName = name
		return nil
	}
	return missing(release.Repo, release.Tag, names)
}
