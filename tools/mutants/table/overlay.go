package table

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
)

// WriteOverlay writes changed files into a folder, and returns the path of the overlay file with which
// `go build -overlay` uses the changed files instead of the files below root.
func WriteOverlay(dir, root string, changed map[string][]byte) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range changed {
		to := filepath.Join(dir, strconv.Itoa(len(replace))+"_"+filepath.Base(name))
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(name))] = to
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o644)
}
