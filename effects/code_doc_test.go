package effects

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Every code has its row in the table that users read, by name and number, in order.
func TestEveryCodeIsExplained(t *testing.T) {
	text, err := os.ReadFile("../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	code := Code(0)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 || !strings.HasPrefix(line, "| [`") {
			continue
		}
		if want := fmt.Sprintf("| [`%s`](#%[1]s) | %[1]d", code); strings.Join(cells[:2], " | ") != want {
			t.Fatalf("a row begins %q, the next code is %q", strings.Join(cells[:2], " | "), want)
		}
		code++
	}
	if code != CodeCount {
		t.Errorf("%d rows for %d codes", code, CodeCount)
	}
}
