package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	linked  = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`) // characters of a heading that the anchor omits
)

// Links between documents lead to files and headings that exist.
func TestLinksOfDocuments(t *testing.T) {
	docs := documents(t)
	for doc, text := range docs {
		for _, m := range linked.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			file := doc
			if to != "" {
				file = filepath.Join(filepath.Dir(doc), to)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s links to %s, which does not exist", doc, m[1])
			}
			if anchor != "" && !slices.Contains(anchors(docs[file]), anchor) {
				t.Errorf("%s links to %s, and %s has no such heading", doc, m[1], file)
			}
		}
	}
}

// README.md links to each document.
func TestDocumentsAreFound(t *testing.T) {
	readme := read(t, "README.md")
	for doc := range sources(t, "docs", ".md") {
		if !strings.Contains(readme, "]("+doc+")") {
			t.Errorf("README.md does not link to %s", doc)
		}
	}
}

// anchors returns the anchors that GitHub generates for the headings of a document.
func anchors(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}
