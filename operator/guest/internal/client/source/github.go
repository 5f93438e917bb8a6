package source

import (
	"context"
	"encoding/json"
)

const (
	githubJSON = "application/vnd.github+json"
	githubRaw  = "application/vnd.github.raw+json"
	// maxTags is how many annotated tags may point to one another before the commit.
	maxTags = 5
)

// readGitHub reads a release through GitHub's REST interface.
func readGitHub(ctx context.Context, settings Settings, release *Release) error {
	forge, err := newForge(settings, settings.Base, release.Repo, map[string]string{"X-GitHub-Api-Version": "2022-11-28"})
	if err != nil {
		return err
	}
	defer forge.close()
	var facts struct {
		Draft     bool   `json:"draft"`
		Published string `json:"published_at"`
	}
	reference := "/git/ref/" + escaped("tags/"+release.Tag)
	found, err := forge.object(ctx, "/releases/tags/"+escaped(release.Tag), githubJSON, &facts)
	if err != nil {
		return err
	}
	if !found || facts.Draft || facts.Published == "" {
		return forge.whyMissing(ctx, release.Tag, reference, githubJSON)
	}
	if err := forge.follow(ctx, reference, release); err != nil {
		return err
	}
	return forge.readTree(ctx, settings, release)
}

// follow follows a tag, annotated or not, to its commit.
func (f *forge) follow(ctx context.Context, path string, release *Release) error {
	for range maxTags {
		var target struct {
			Object struct {
				Type string `json:"type"`
				SHA  string `json:"sha"`
			} `json:"object"`
		}
		found, err := f.object(ctx, path, githubJSON, &target)
		if err != nil {
			return err
		}
		if !found || !commitPattern.MatchString(target.Object.SHA) {
			break
		}
		if target.Object.Type == "commit" {
			release.Commit = target.Object.SHA
			return nil
		}
		if target.Object.Type != "tag" {
			break
		}
		path = "/git/tags/" + target.Object.SHA
	}
	return failed("name a tag of a commit", "the tag %s of %s leads to %v", release.Tag, f.repo, errNoCommit)
}

// readTree reads the file by its content's id, so that a tag that moves cannot mix two commits.
func (f *forge) readTree(ctx context.Context, settings Settings, release *Release) error {
	type entry struct {
		Path string      `json:"path"`
		Mode string      `json:"mode"`
		SHA  string      `json:"sha"`
		Size json.Number `json:"size"`
	}
	var tree struct {
		Entries []entry `json:"tree"`
	}
	if found, err := f.object(ctx, "/git/trees/"+release.Commit, githubJSON, &tree); err != nil || !found {
		if err == nil {
			err = missing(release.Repo, release.Tag, settings.FileNames)
		}
		return err
	}
	for _, name := range settings.FileNames {
		for _, each := range tree.Entries {
			if each.Path != name {
				continue
			}
			if each.Mode != "100644" && each.Mode != "100755" {
				return notRegular(release.Repo, name)
			}
			if size, err := each.Size.Int64(); err != nil || size > maxFile {
				return tooLarge(release.Repo, name)
			}
			content, err := f.get(ctx, "/git/blobs/"+escaped(each.SHA), githubRaw)
			if err != nil {
				return err
			}
			if blobID(content) != each.SHA {
				return failed("try it again", "the forge did not send %s of %s as it is", name, release.Repo)
			}
			release.FileName, release.File = name, content
			return nil
		}
	}
	return missing(release.Repo, release.Tag, settings.FileNames)
}
