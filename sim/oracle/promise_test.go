package oracle

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The promises in reports are the promises of docs/safety.md.
func TestPromisesAreThoseOfTheDocs(t *testing.T) {
	doc, err := os.ReadFile("../../docs/safety.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(doc)), " ")
	rows := regexp.MustCompile(` - \*\*([SLC][0-9]+)\*\* \*([^*]+)\*\.`).FindAllStringSubmatch(text, -1)
	if len(rows) != len(promises)-2 { // All except the contract and panics.
		t.Fatalf("%d properties in docs/safety.md, want %d", len(rows), len(promises)-2)
	}
	for _, row := range rows {
		if Promise(row[1]) != row[2] {
			t.Errorf("%s is %q here and %q in docs/safety.md", row[1], Promise(row[1]), row[2])
		}
	}
}
