package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// folders are the folders of internal, each with those that it may import.
var folders = map[string][]string{
	"supervisor": {"frontdoor", "evidence", "weights", "network", "foundation"},
	"client":     {"evidence", "foundation"},
	"container":  {"network", "foundation"},
	"frontdoor":  {"evidence", "foundation"},
	"evidence":   {"foundation"},
	"network":    {"foundation"},
	"weights":    {"foundation"},
	"foundation": {},
}

func TestFoldersImportOnlyLowerFolders(t *testing.T) {
	const prefix = "cloister.dev/guest/internal/"
	used := map[string][]string{}
	err := filepath.WalkDir("internal", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		folder := strings.Split(filepath.ToSlash(path), "/")[1]
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, imported := range file.Imports {
			name, err := strconv.Unquote(imported.Path.Value)
			if err != nil {
				return err
			}
			below, inside := strings.CutPrefix(name, prefix)
			other, _, _ := strings.Cut(below, "/")
			if !inside || other == folder {
				continue
			}
			if !slices.Contains(folders[folder], other) {
				t.Errorf("%s imports %s: folder %s may not import folder %s", path, name, folder, other)
			}
			used[folder] = append(used[folder], other)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder, allowed := range folders {
		for _, other := range allowed {
			if !slices.Contains(used[folder], other) {
				t.Errorf("folder %s imports nothing of folder %s: remove the permission", folder, other)
			}
		}
	}
}
