package docs

import (
	"regexp"
	"strings"
	"testing"
)

// TestTutorialOfEmbedding checks that the programs and files in docs/tutorials/embed.md are parts of examples/embed.
func TestTutorialOfEmbedding(t *testing.T) {
	plain := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	source := map[string]string{
		"go":   plain(read(t, "examples/embed/main.go")),
		"yaml": plain(read(t, "examples/embed/decode.yaml")),
	}
	blocks := regexp.MustCompile("(?s)```(go|yaml)\n(.*?)```").FindAllStringSubmatch(read(t, "docs/tutorials/embed.md"), -1)
	if len(blocks) < 4 {
		t.Errorf("docs/tutorials/embed.md shows %d programs and files, want at least 4", len(blocks))
	}
	for _, b := range blocks {
		for statement := range strings.SplitSeq(strings.TrimSpace(b[2]), "\n\n") {
			if !strings.Contains(source[b[1]], plain(statement)) {
				t.Errorf("docs/tutorials/embed.md shows a text that examples/embed does not have:\n%s", statement)
			}
		}
	}
}
