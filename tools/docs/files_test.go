package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../.."

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documents returns the text of every document, by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := sources(t, "docs", ".md")
	for _, name := range []string{"README.md", "CONTRIBUTING.md"} {
		all[name] = read(t, name)
	}
	return all
}

// sources returns the text of the files below a folder whose names have an ending, by their paths.
func sources(t *testing.T, below, end string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(filepath.Join(root, below), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "..":
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, end):
			return nil
		}
		text, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, root+"/")] = string(text)
		return err
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("%d files *%s below %q: %v", len(all), end, below, err)
	}
	return all
}
