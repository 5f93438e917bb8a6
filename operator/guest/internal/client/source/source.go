// Package source reads the configuration file of a release from where its repository lives, as the
// operator does (crds/cloister_crds and cloister_clients/sources): GitHub, Gitea or Forgejo, plain git.
package source

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// timeout is the longest time for a file with all the requests that it needs.
const timeout = time.Minute

// Release is the configuration file at a tag.
type Release struct {
	// Repo and Tag are as they were requested.
	Repo, Tag string
	// Commit is what the tag points to.
	Commit string
	// FileName is which of the possible names the file has.
	FileName string
	// File is the file, byte for byte.
	File []byte
}

// Error is a release that cannot be read.
type Error struct {
	// Problem is what happened.
	Problem string
	// Remedy is what to do.
	Remedy string
}

// Error returns the problem and the remedy.
func (e *Error) Error() string { return e.Problem + "; " + e.Remedy }

func failed(remedy, format string, values ...any) error {
	return &Error{Problem: fmt.Sprintf(format, values...), Remedy: remedy}
}

var (
	repoPattern   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}/[A-Za-z0-9_.-]{1,100}$`)
	commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)
	tagForbidden  = regexp.MustCompile("[\x00-\x20\x7f~^:?*\\[\\\\]|\\.\\.|@\\{|//")
)

// Read reads the file of a release. With a commit the tag must point to that one.
func Read(ctx context.Context, settings Settings, repo, tag, commit string) (Release, error) {
	if err := check(repo, tag, commit); err != nil {
		return Release{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	release := Release{Repo: repo, Tag: tag}
	var err error
	switch settings.Kind {
	case kindGitHub:
		err = readGitHub(ctx, settings, &release)
	case kindGitea:
		err = readGitea(ctx, settings, &release)
	default:
		err = readGit(ctx, settings, &release)
	}
	if err != nil {
		return Release{}, err
	}
	if commit != "" && commit != release.Commit {
		return Release{}, failed("find out why: a tag that moved is another release", "the tag %s of %s points to %s, not to %s", tag, repo, release.Commit, commit)
	}
	return release, nil
}

func check(repo, tag, commit string) error {
	wrong := tag == "" || len(tag) > 200 || strings.HasPrefix(tag, "-") || strings.HasSuffix(tag, ".") || tag == "@" || tagForbidden.MatchString(tag)
	for part := range strings.SplitSeq(tag, "/") {
		wrong = wrong || part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock")
	}
	switch {
	case !repoPattern.MatchString(repo) || strings.HasSuffix(repo, "/.") || strings.HasSuffix(repo, "/.."):
		return failed("write owner/name", "%.100q is not a repository", repo)
	case wrong:
		return failed("write the tag as the repository lists it, such as v1.2.3", "%.100q is not a tag", tag)
	case commit != "" && !commitPattern.MatchString(commit):
		return failed("write its 40 hexadecimal digits in lower case", "%.100q is not a commit", commit)
	}
	return nil
}

// blobID returns git's id of a file's content.
func blobID(content []byte) string {
	hash := sha1.New() //nolint:gosec // git's object ids are SHA-1; what counts is the SHA-256 in the measurement
	fmt.Fprintf(hash, "blob %d\x00", len(content))
	hash.Write(content)
	return hex.EncodeToString(hash.Sum(nil))
}

func missing(repo, tag string, names []string) error {
	return failed("name the file in fileNames of --source, or another tag", "%s has no %s at %s", repo, strings.Join(names, ", "), tag)
}

func notRegular(repo, name string) error {
	return failed("the repository must have it as a file", "%s of %s is not a regular file", name, repo)
}

func tooLarge(repo, name string) error {
	return failed("it must be one that can be deployed", "%s of %s has more than %d bytes", name, repo, maxFile)
}
