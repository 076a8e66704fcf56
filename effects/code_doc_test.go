package effects

import (
	"fmt"
	"os"
	"regexp"
	"testing"
)

// Every code has its section in the page that users read, by name and number, in order.
func TestEveryCodeIsExplained(t *testing.T) {
	text, err := os.ReadFile("../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := regexp.MustCompile("\n### (`.*`)\n\n\\*(\\d+); ").FindAllStringSubmatch(string(text), -1)
	for i, s := range sections {
		if want := fmt.Sprintf("`%v` %d", Code(i), i); s[1]+" "+s[2] != want {
			t.Fatalf("a section is of %s %s, the next code is %s", s[1], s[2], want)
		}
	}
	if len(sections) != int(CodeCount) {
		t.Errorf("%d sections for %d codes", len(sections), CodeCount)
	}
}
