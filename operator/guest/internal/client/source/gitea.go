package source

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
)

const giteaJSON = "application/json"

// readGitea reads a release through the REST interface of Gitea or Forgejo, version 1.
func readGitea(ctx context.Context, settings Settings, release *Release) error {
	forge, err := newForge(settings, settings.Base+"/api/v1", release.Repo, map[string]string{})
	if err != nil {
		return err
	}
	defer forge.close()
	var facts struct {
		Draft bool `json:"draft"`
	}
	// The slashes of a tag stay here, since it ends the path.
	tagPath := "/tags/" + strings.ReplaceAll(escaped(release.Tag), "%2F", "/")
	found, err := forge.object(ctx, "/releases/tags/"+escaped(release.Tag), giteaJSON, &facts)
	if err != nil {
		return err
	}
	if !found || facts.Draft {
		return forge.whyMissing(ctx, release.Tag, tagPath, giteaJSON)
	}
	var tag struct {
		Commit struct {
			SHA string `json:"sha"`
		} `json:"commit"`
	}
	found, err = forge.object(ctx, tagPath, giteaJSON, &tag)
	if err != nil {
		return err
	}
	if !found || !commitPattern.MatchString(tag.Commit.SHA) {
		return failed("name a tag of a commit", "the tag %s of %s leads to %v", release.Tag, release.Repo, errNoCommit)
	}
	release.Commit = tag.Commit.SHA
	for _, name := range settings.FileNames {
		body, err := forge.get(ctx, "/contents/"+escaped(name)+"?ref="+release.Commit, giteaJSON)
		if err != nil {
			return err
		}
		if body == nil {
			continue
		}
		release.FileName = name
		release.File, err = giteaFile(body, release.Repo, name)
		return err
	}
	return missing(release.Repo, release.Tag, settings.FileNames)
}

// giteaFile returns the content in a response; that for a directory is a list.
func giteaFile(body []byte, repo, name string) ([]byte, error) {
	var facts struct {
		Type    string `json:"type"`
		Size    int    `json:"size"`
		SHA     string `json:"sha"`
		Content string `json:"content"`
	}
	if err := json.Unmarshal(body, &facts); err != nil || facts.Type != "file" {
		return nil, notRegular(repo, name)
	}
	if facts.Size > maxFile {
		return nil, tooLarge(repo, name)
	}
	content, err := base64.StdEncoding.DecodeString(facts.Content)
	if err != nil || len(content) != facts.Size || facts.SHA != blobID(content) {
		return nil, failed("try it again", "the forge did not send %s of %s as it is", name, repo)
	}
	return content, nil
}
