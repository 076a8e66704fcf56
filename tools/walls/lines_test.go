package walls

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// columnsMax is the maximum width of a line of Go, in which a tab counts as one column.
const columnsMax = 140

// TestLinesAreShort checks that no line is so long that readers must scroll sideways.
func TestLinesAreShort(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() != ".." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for n := 1; lines.Scan(); n++ {
			if wide := utf8.RuneCount(lines.Bytes()); wide > columnsMax {
				t.Errorf("%s:%d has %d columns, want at most %d: break it", path, n, wide, columnsMax)
			}
		}
		return lines.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
}
